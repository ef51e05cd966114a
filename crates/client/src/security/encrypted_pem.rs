//! Private keys in PEM under a password in OpenSSL's form of old: RFC 1421's headers, and a key that MD5 makes of the password
//! (`EVP_BytesToKey`). OpenSSL still reads it, and `openssl rsa -traditional -aes256` writes it.

use aes::{Aes128, Aes192, Aes256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use cbc::Decryptor;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockCipherDecrypt, BlockModeDecrypt, KeyInit, KeyIvInit};
use des::TdesEde3;
use md5::{Digest, Md5};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivateSec1KeyDer};
use zeroize::Zeroizing;

use super::Secret;

const ENCRYPTED: &str = "Proc-Type: 4,ENCRYPTED";
/// The first bytes of the initialization vector are the salt of the key, too.
const SALT_BYTES: usize = 8;

/// Returns `true` if a PEM text has a key in this form.
pub(crate) fn has_key(pem: &str) -> bool {
    pem.contains(ENCRYPTED)
}

/// Decrypts the first key in this form. An error says why it cannot be decrypted.
pub(crate) fn decrypt(pem: &str, password: &Secret) -> Result<PrivateKeyDer<'static>, String> {
    let Some(Block { label, algorithm, iv, base64 }) = Block::first(pem) else {
        return Err("it is damaged: its headers or its end are missing".into());
    };
    let data = STANDARD.decode(base64).map_err(|error| format!("it is damaged: {error}"))?;
    let mut data = Zeroizing::new(data);
    let salt = iv.get(..SALT_BYTES).ok_or("it is damaged: its DEK-Info is too short")?;
    let key = |bytes: usize| derived_key(password.expose().as_bytes(), salt, bytes);
    let opened = match algorithm {
        "AES-128-CBC" => open::<Aes128>(&key(16), &iv, &mut data),
        "AES-192-CBC" => open::<Aes192>(&key(24), &iv, &mut data),
        "AES-256-CBC" => open::<Aes256>(&key(32), &iv, &mut data),
        "DES-EDE3-CBC" => open::<TdesEde3>(&key(24), &iv, &mut data),
        other => {
            return Err(format!(
                "`{other}` is none of the ciphers AES-128-CBC to AES-256-CBC and DES-EDE3-CBC"
            ));
        }
    };
    let der = opened.ok_or("the password is wrong")?.to_vec();
    match label {
        "RSA PRIVATE KEY" => Ok(PrivatePkcs1KeyDer::from(der).into()),
        "EC PRIVATE KEY" => Ok(PrivateSec1KeyDer::from(der).into()),
        other => Err(format!("`{other}` is neither an RSA key nor that of an elliptic curve")),
    }
}

/// The parts of a key.
struct Block<'a> {
    label: &'a str,
    algorithm: &'a str,
    iv: Vec<u8>,
    base64: String,
}

impl<'a> Block<'a> {
    fn first(pem: &'a str) -> Option<Self> {
        let (before, after) = pem.split_once(ENCRYPTED)?;
        let (label, _) = before.rsplit_once("-----BEGIN ")?.1.split_once("-----")?;
        let (body, _) = after.split_once("-----END ")?;
        let (info, base64) = body.split_once("DEK-Info:")?.1.split_once('\n')?;
        let (algorithm, iv) = info.split_once(',')?;
        Some(Self {
            label,
            algorithm: algorithm.trim(),
            iv: bytes_of_hex(iv.trim())?,
            base64: base64.split_whitespace().collect(),
        })
    }
}

fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let bytes = text.as_bytes().chunks(2).map(|pair| match *pair {
        [high, low] => Some((digit(high)? * 16 + digit(low)?) as u8),
        _ => None,
    });
    bytes.collect()
}

/// Decrypts in place; `None` if the padding shows that the key is another one.
fn open<'a, C: BlockCipherDecrypt + KeyInit>(key: &[u8], iv: &[u8], data: &'a mut [u8]) -> Option<&'a [u8]> {
    Decryptor::<C>::new_from_slices(key, iv).ok()?.decrypt_padded::<Pkcs7>(data).ok()
}

/// `EVP_BytesToKey` with MD5 and one iteration.
fn derived_key(password: &[u8], salt: &[u8], bytes: usize) -> Zeroizing<Vec<u8>> {
    let mut key = Zeroizing::new(Vec::with_capacity(bytes + Md5::output_size()));
    let mut digest = Zeroizing::new(Vec::new());
    while key.len() < bytes {
        let message = Zeroizing::new([digest.as_slice(), password, salt].concat());
        *digest = Md5::digest(&message).to_vec();
        key.extend_from_slice(&digest);
    }
    key.truncate(bytes);
    key
}

#[cfg(test)]
mod tests {
    use rustls::pki_types::pem::PemObject;

    use super::*;

    /// A key of `openssl ecparam -name prime256v1 -genkey`, which nothing uses.
    const PLAIN: &str = "-----BEGIN EC PRIVATE KEY-----\n\
                         MHcCAQEEIM0uv8huplr/JzVB6EkX36hX93BvVDxsZ50U/dlpVkF0oAoGCCqGSM49\n\
                         AwEHoUQDQgAELrPC/gRgTuAH9HEH3nLIO35HpKK0nWUqkm/RwPkguz7+MEt3GCuN\n\
                         Mu6ilrARTfwJO0qyi2wPrt2iMD9hCv3uuQ==\n\
                         -----END EC PRIVATE KEY-----\n";

    /// The same key by `openssl ec -aes128 -passout pass:swordfish`, and with the other ciphers: its DEK-Info and its data.
    const KEYS: [(&str, &str); 4] = [
        (
            "AES-128-CBC,C91A8F51F758E074FB1E68A745821603",
            "N648DU96FSezVhFExm2w7pRGEKKxsnaehtMjQZ05Y8jvYSvTXmDe1D1pZcqtCpYi\
             +z3cgzBp+9P0xDy1RGiuUiHOsVykBXDpBwG0rR5+ApurffI6fLZ7RXWmUAHT9aAS\
             IjBQuZ17FD6L7ttWpEvfcBO0uD3srEkOzjR6vNwZgbs=",
        ),
        (
            "AES-192-CBC,3571799543B07CD889973D12D09C76C7",
            "PPXKT6Pj4mr1yufyv7JG9gvejxrzJJx0rm6Y/xY8LYtXqF/pD7jpmkYPBO0z/73X\
             ICp92rdie1trqbSt5gxiCuLFXEc2TesBmJlnza8Fu2sLZZayrKS8e0bsDhetOxpK\
             X4gpjw3TtTFpZ0pafl0FGvtRWQCZvVq7J1ZKQ8wcg2k=",
        ),
        (
            "AES-256-CBC,4F35BF21588543C547CA717443CABDB7",
            "PNfpdJqWlnhtIDVP8N7DzCOS8Tsn4ECJgRMcljvEmSaO47/xGL1Tk7SvViiDOGhx\
             PIbrHfEy1s8CvaWzA7050oprE8ZWp/sEPiuZrsuoUj/2337PPBMB6/lHlQXqnp3/\
             WZ8dpOVjy06kixeHt5DBRkvQJbOoDAez1cBWU5NCgfg=",
        ),
        (
            "DES-EDE3-CBC,727DBCE6C1D93C01",
            "KTzjthhDlp7BKibTLJdv9zFvKJGsYJNf9gRaogTbUkW45fs0U8HIzKK1tNdSqtUF\
             ZdwoZtPN9YO3mjeBYEMfqnWYSW/Ix8Vau0lLEu2FBpSAM78Rjrp/ImgnhHCqvHrm\
             gTP6UZbBx7a7l7uuxy3HJcD6QFnyZHh0udmSu5j9W/M=",
        ),
    ];

    fn pem((info, data): (&str, &str)) -> String {
        format!(
            "-----BEGIN EC PRIVATE KEY-----\n{ENCRYPTED}\nDEK-Info: {info}\n\n{data}\n-----END EC PRIVATE KEY-----\n"
        )
    }

    #[test]
    fn a_key_that_openssl_encrypted_is_decrypted_with_its_password_only() {
        let plain = PrivateKeyDer::from_pem_slice(PLAIN.as_bytes()).expect("a key");
        for pem in KEYS.map(pem) {
            let opened = decrypt(&pem, &Secret::new("swordfish")).expect("the password");
            assert_eq!(opened.secret_der(), plain.secret_der(), "{pem}");
            assert!(matches!(opened, PrivateKeyDer::Sec1(_)));
            let refused = decrypt(&pem, &Secret::new("marlin")).expect_err("another password");
            assert_eq!(refused, "the password is wrong");
        }
    }

    #[test]
    fn a_damaged_key_is_refused_with_the_reason() {
        let password = Secret::new("swordfish");
        for (part, other, reason) in [
            ("-----END", "", "its headers or its end"),
            ("DEK-Info", "Dek", "its headers or its end"),
            ("AES-128-CBC,C9", "AES-128-CBC,C", "its headers or its end"),
            ("AES-128-CBC,C91A8F51F758E074FB1E68A745821603", "AES-128-CBC,C91A", "too short"),
            ("AES-128-CBC", "DES-CBC", "none of the ciphers"),
            ("EC PRIVATE", "DSA PRIVATE", "neither an RSA key"),
        ] {
            let damaged = pem(KEYS[0]).replace(part, other);
            let refused = decrypt(&damaged, &password).expect_err("damaged");
            assert!(refused.contains(reason), "{part}: {refused}");
        }
    }
}
