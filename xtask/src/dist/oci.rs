//! The container image, in the layout that the Open Container Initiative specifies: one layer with the C library and
//! certificates, one with the command, and the documents that name them by their SHA-256.

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use ottla_interop::Failure;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::archive::{gzip, tar};
use super::build::Artefacts;
use super::elf::Dynamic;
use super::layout::VERSION;
use super::tools::debian_packages;
use super::tree::{Tree, read};

/// The user of the broker in the image; it has no name outside.
const USER: u32 = 65532;

/// The directory of the broker's data: a volume.
pub(crate) const DATA: &str = "var/lib/ottla";

/// The directory of `--secure`: a new volume gets its owner and mode.
pub(crate) const SECURE: &str = "var/lib/ottla-secure";

/// Debian's packages with files in the image.
pub(crate) const DEBIAN: &[&str] = &["libc6", "libgcc-s1", "ca-certificates"];

const LIB: &str = "usr/lib/x86_64-linux-gnu";

/// The layers of the image, in their order.
pub(crate) fn layers(artefacts: &Artefacts) -> Result<Vec<Tree>, Failure> {
    Ok(vec![base(&artefacts.path("ottla"))?, command(artefacts)?])
}

fn command(artefacts: &Artefacts) -> Result<Tree, Failure> {
    let mut tree = Tree::default();
    tree.program("usr/bin/ottla", artefacts.bytes("ottla")?);
    tree.file("usr/share/doc/ottla/THIRD-PARTY.txt", artefacts.bytes("THIRD-PARTY.txt")?);
    // The broker refuses a directory that other users can write to, and cannot create one there.
    tree.dir(DATA, 0o700, USER);
    tree.dir(SECURE, 0o700, USER);
    Ok(tree)
}

/// The libraries of Debian that the binary needs, Mozilla's certificates, and the files that name the user.
fn base(ottla: &Path) -> Result<Tree, Failure> {
    let debian = debian_packages(DEBIAN)?;
    let mut tree = Tree::default();
    let loader = "ld-linux-x86-64.so.2";
    tree.program(&format!("{LIB}/{loader}"), read(&find(&debian, loader)?)?);
    tree.link(&format!("lib64/{loader}"), &format!("../{LIB}/{loader}"));
    let mut wanted = Dynamic::of(ottla)?.needed;
    while let Some(name) = wanted.pop() {
        let place = format!("{LIB}/{name}");
        if tree.entries().any(|(path, _)| path == place) {
            continue;
        }
        let file = find(&debian, &name)?;
        wanted.extend(Dynamic::of(&file)?.needed);
        tree.file(&place, read(&file)?);
    }
    // The loader searches this directory without a cache.
    tree.link("lib", "usr/lib");
    for package in DEBIAN {
        let copyright = format!("usr/share/doc/{package}/copyright");
        if let Ok(text) = read(&debian.join(&copyright)) {
            tree.file(&copyright, text);
        }
    }
    tree.file("etc/ssl/certs/ca-certificates.crt", certificates(&debian)?);
    tree.file(
        "etc/passwd",
        format!("root:x:0:0::/:/sbin/nologin\nottla:x:{USER}:{USER}::/{DATA}:/sbin/nologin\n"),
    );
    tree.file("etc/group", format!("root:x:0:\nottla:x:{USER}:\n"));
    tree.file("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files dns\n");
    tree.dir("tmp", 0o1777, 0);
    Ok(tree)
}

/// The file of a library in the unpacked packages: `lib` or `usr/lib`, by the release of Debian.
fn find(debian: &Path, library: &str) -> Result<PathBuf, Failure> {
    let dirs = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib64", "lib64"];
    let files = dirs.iter().map(|dir| debian.join(dir).join(library));
    let mut files = files.filter(|file| fs::metadata(file).is_ok_and(|meta| meta.is_file()));
    files
        .next()
        .ok_or_else(|| Failure::new(format!("the image needs {library}, which Debian's libc6 does not have")))
}

/// All certificates in one file, in the order of their names.
fn certificates(debian: &Path) -> Result<Vec<u8>, Failure> {
    let dir = debian.join("usr/share/ca-certificates/mozilla");
    let entries = fs::read_dir(&dir).map_err(|error| Failure::new(format!("{}: {error}", dir.display())))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        all.extend(read(&file)?);
    }
    Ok(all)
}

/// The image as a tar of its layout, which `podman load`, `docker load` and `skopeo copy oci-archive:` read.
pub(crate) fn archive(layers: &[Tree], epoch_s: u64) -> Result<Vec<u8>, Failure> {
    tar(&layout(layers, epoch_s)?, "", epoch_s)
}

fn layout(layers: &[Tree], epoch_s: u64) -> Result<Tree, Failure> {
    let mut tree = Tree::default();
    let mut descriptors = Vec::new();
    let mut diff_ids = Vec::new();
    for layer in layers {
        let unpacked = tar(layer, "", epoch_s)?;
        diff_ids.push(digest(&unpacked));
        descriptors.push(blob(&mut tree, "application/vnd.oci.image.layer.v1.tar+gzip", gzip(&unpacked)?));
    }
    let created = rfc3339(epoch_s);
    let config = json!({
        "created": created,
        "architecture": "amd64",
        "os": "linux",
        "config": {
            "User": format!("{USER}:{USER}"),
            "ExposedPorts": { "9092/tcp": {} },
            "Entrypoint": ["/usr/bin/ottla"],
            "Cmd": ["broker", "--data", format!("/{DATA}"), "--insecure", "--listen", "0.0.0.0:9092", "--advertise", "localhost"],
            "Env": ["PATH=/usr/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
            "Volumes": { format!("/{DATA}"): {} },
            "WorkingDir": "/",
            "StopSignal": "SIGTERM",
            "Labels": labels(&created),
        },
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
        "history": [
            { "created": created, "created_by": "C library and certificates of Debian" },
            { "created": created, "created_by": format!("ottla {VERSION}") },
        ],
    });
    let config = blob(&mut tree, "application/vnd.oci.image.config.v1+json", text(&config));
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": config,
        "layers": descriptors,
        "annotations": labels(&created),
    });
    let mut manifest = blob(&mut tree, MANIFEST, text(&manifest));
    manifest["annotations"] = json!({ "org.opencontainers.image.ref.name": VERSION });
    manifest["platform"] = json!({ "architecture": "amd64", "os": "linux" });
    let index = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [manifest],
    });
    tree.file("index.json", text(&index));
    tree.file("oci-layout", text(&json!({ "imageLayoutVersion": "1.0.0" })));
    Ok(tree)
}

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

fn labels(created: &str) -> Value {
    json!({
        "org.opencontainers.image.title": "ottla",
        "org.opencontainers.image.description": "A broker and command-line tools for the Kafka protocol",
        "org.opencontainers.image.version": VERSION,
        "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        "org.opencontainers.image.created": created,
    })
}

/// Adds the blob, and returns its descriptor.
fn blob(tree: &mut Tree, media_type: &str, contents: Vec<u8>) -> Value {
    let digest = digest(&contents);
    let descriptor = json!({ "mediaType": media_type, "digest": digest, "size": contents.len() });
    tree.file(&format!("blobs/{}", digest.replace(':', "/")), contents);
    descriptor
}

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

/// `sha256:` and the digest in hexadecimal.
pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex(&Sha256::digest(bytes)))
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `1970-01-01T00:00:00Z` for 0.
pub(crate) fn rfc3339(epoch_s: u64) -> String {
    let (days, second) = (epoch_s / 86_400, epoch_s % 86_400);
    // Days since 0000-03-01, in eras of 400 years: the leap day is the last day of a year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Unpacks an image as a container engine does: the blobs by their digests, the layers in their order. Fails when a
/// digest is wrong.
pub(crate) fn unpack(image: &Path, root: &Path) -> Result<Value, Failure> {
    let layout = tempfile::tempdir().map_err(|error| Failure::new(format!("a directory: {error}")))?;
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", image.display()));
    tar::Archive::new(fs::File::open(image).map_err(failed)?).unpack(layout.path()).map_err(failed)?;
    let index = document(&read(&layout.path().join("index.json"))?)?;
    let manifest = document(&read_blob(layout.path(), &index["manifests"][0])?)?;
    let config = document(&read_blob(layout.path(), &manifest["config"])?)?;
    let layers = manifest["layers"].as_array().cloned().unwrap_or_default();
    let diff_ids = config["rootfs"]["diff_ids"].as_array().cloned().unwrap_or_default();
    if layers.is_empty() || layers.len() != diff_ids.len() {
        return Err(Failure::new(format!(
            "{} layers, and {} in the configuration",
            layers.len(),
            diff_ids.len()
        )));
    }
    for (layer, diff_id) in layers.iter().zip(&diff_ids) {
        let blob = read_blob(layout.path(), layer)?;
        let mut unpacked = Vec::new();
        std::io::Read::read_to_end(&mut flate2::read::GzDecoder::new(blob.as_slice()), &mut unpacked)
            .map_err(failed)?;
        if Some(digest(&unpacked).as_str()) != diff_id.as_str() {
            return Err(Failure::new(format!("the layer {diff_id} has the digest {}", digest(&unpacked))));
        }
        let mut archive = tar::Archive::new(unpacked.as_slice());
        archive.set_preserve_permissions(true);
        archive.set_preserve_ownerships(rustix::process::getuid().is_root());
        archive.unpack(root).map_err(failed)?;
    }
    Ok(config)
}

fn read_blob(layout: &Path, descriptor: &Value) -> Result<Vec<u8>, Failure> {
    let wanted = descriptor["digest"].as_str().unwrap_or_default();
    let blob = read(&layout.join("blobs").join(wanted.replace(':', "/")))?;
    if digest(&blob) == wanted && Some(blob.len() as u64) == descriptor["size"].as_u64() {
        return Ok(blob);
    }
    Err(Failure::new(format!("the blob {wanted} has {} bytes and the digest {}", blob.len(), digest(&blob))))
}

fn document(bytes: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(bytes).map_err(|error| Failure::new(format!("a document of the image: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> Vec<Tree> {
        let mut base = Tree::default();
        base.file("etc/passwd", "root");
        let mut command = Tree::default();
        command.program("usr/bin/ottla", "binary");
        vec![base, command]
    }

    #[test]
    fn times_are_written_as_dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_827_696), "2000-02-29T12:34:56Z");
        assert_eq!(rfc3339(1_795_469_899), "2026-11-23T21:38:19Z");
    }

    #[test]
    fn an_image_unpacks_to_its_layers() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("image.tar");
        fs::write(&file, archive(&image(), 17).unwrap()).unwrap();
        let root = dir.path().join("root");
        let config = unpack(&file, &root).unwrap();
        assert_eq!(config["config"]["Entrypoint"][0], "/usr/bin/ottla");
        assert_eq!(fs::read(root.join("usr/bin/ottla")).unwrap(), b"binary");
        assert_eq!(fs::read(root.join("etc/passwd")).unwrap(), b"root");
    }

    #[test]
    fn a_changed_blob_is_found() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("image.tar");
        let mut bytes = archive(&image(), 17).unwrap();
        let config = bytes.windows(7).position(|window| window == b"SIGTERM").unwrap();
        bytes[config + 3] = b'K';
        fs::write(&file, bytes).unwrap();
        let failure = unpack(&file, &dir.path().join("root")).unwrap_err().to_string();
        assert!(failure.contains("and the digest"), "{failure}");
    }

    #[test]
    fn two_builds_give_the_same_bytes() {
        assert_eq!(archive(&image(), 17).unwrap(), archive(&image(), 17).unwrap());
    }
}
