//! Variable-length integers: zigzag for record fields (as in Protocol Buffers), unsigned for flexible request fields.

/// Maximum length of a 32-bit varint in bytes.
pub const VARINT_BYTES_MAX: usize = 5;
/// Maximum length of a 64-bit varint in bytes.
pub const VARLONG_BYTES_MAX: usize = 10;

/// An error in a varint.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum VarintError {
    /// The input ends inside the number.
    #[error("varint: the input ends inside the number")]
    Truncated,
    /// The number has more bytes or bits than its type allows.
    #[error("varint: the number is longer than its type allows")]
    TooLong,
}

/// Moves the sign to the lowest bit, so that small negative numbers are short.
#[inline]
pub const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// The number of bytes that [`put_unsigned`] writes for `value`.
#[inline]
pub const fn unsigned_len(value: u64) -> usize {
    // 7 payload bits a byte, rounded up: 9/64 is close enough to 1/7 for up to 64 bits, and needs no division.
    let highest_bit = 63 - (value | 1).leading_zeros() as usize;
    (highest_bit * 9 + 73) / 64
}

/// The number of bytes that [`put_signed`] writes for `value`.
#[inline]
pub const fn signed_len(value: i64) -> usize {
    unsigned_len(zigzag(value))
}

/// Writes `value` at the start of `out` and returns the number of bytes written.
///
/// `out` must have at least [`unsigned_len`] bytes: 5 for any `u32`, 10 for any `u64`.
#[inline]
pub fn write_unsigned(out: &mut [u8], mut value: u64) -> usize {
    let mut at = 0;
    while value >= 0x80 {
        out[at] = value as u8 | 0x80;
        value >>= 7;
        at += 1;
    }
    out[at] = value as u8;
    at + 1
}

/// Writes `value` in zigzag encoding at the start of `out` and returns the number of bytes written.
#[inline]
pub fn write_signed(out: &mut [u8], value: i64) -> usize {
    write_unsigned(out, zigzag(value))
}

/// Appends `value` to `out`.
#[inline]
pub fn put_unsigned(out: &mut impl Extend<u8>, value: u64) {
    let mut buf = [0; VARLONG_BYTES_MAX];
    let n = write_unsigned(&mut buf, value);
    out.extend(buf[..n].iter().copied());
}

/// Appends `value` in zigzag encoding to `out`.
#[inline]
pub fn put_signed(out: &mut impl Extend<u8>, value: i64) {
    put_unsigned(out, zigzag(value));
}

/// Reads an unsigned 32-bit varint from the front of `input`. Returns the value and its length in bytes.
#[inline]
pub fn read_u32(input: &[u8]) -> Result<(u32, usize), VarintError> {
    let (value, n) = read_u64_within(input, VARINT_BYTES_MAX)?;
    u32::try_from(value).map(|value| (value, n)).map_err(|_| VarintError::TooLong)
}

/// Reads an unsigned 64-bit varint from the front of `input`.
#[inline]
pub fn read_u64(input: &[u8]) -> Result<(u64, usize), VarintError> {
    read_u64_within(input, VARLONG_BYTES_MAX)
}

/// Reads a 32-bit zigzag varint from the front of `input`.
#[inline]
pub fn read_i32(input: &[u8]) -> Result<(i32, usize), VarintError> {
    let (value, n) = read_u32(input)?;
    Ok((unzigzag(u64::from(value)) as i32, n))
}

/// Reads a 64-bit zigzag varint from the front of `input`.
#[inline]
pub fn read_i64(input: &[u8]) -> Result<(i64, usize), VarintError> {
    let (value, n) = read_u64(input)?;
    Ok((unzigzag(value), n))
}

#[inline]
fn read_u64_within(input: &[u8], bytes_max: usize) -> Result<(u64, usize), VarintError> {
    // Most record fields are one byte long. The length of a record and of its value have two from 64 bytes on.
    match *input {
        [byte, ..] if byte < 0x80 => Ok((u64::from(byte), 1)),
        [low, high, ..] if high < 0x80 => Ok((u64::from(low & 0x7f) | u64::from(high) << 7, 2)),
        _ => read_longer(input, bytes_max),
    }
}

fn read_longer(input: &[u8], bytes_max: usize) -> Result<(u64, usize), VarintError> {
    let mut value = 0_u64;
    for (at, &byte) in input.iter().take(bytes_max).enumerate() {
        let bits = u64::from(byte & 0x7f);
        if at == VARLONG_BYTES_MAX - 1 && bits > 1 {
            return Err(VarintError::TooLong);
        }
        value |= bits << (7 * at);
        if byte < 0x80 {
            return Ok((value, at + 1));
        }
    }
    Err(if input.len() < bytes_max { VarintError::Truncated } else { VarintError::TooLong })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn powers_of_two_and_their_neighbours_round_trip() {
        for shift in 0..64 {
            for delta in [-1_i64, 0, 1] {
                let value = (1_i64 << shift).wrapping_add(delta);
                for value in [value, value.wrapping_neg()] {
                    let mut out = Vec::new();
                    put_signed(&mut out, value);
                    assert_eq!(out.len(), signed_len(value));
                    assert_eq!(read_i64(&out), Ok((value, out.len())));
                    for cut in 0..out.len() {
                        assert_eq!(read_i64(&out[..cut]), Err(VarintError::Truncated));
                    }
                    if let Ok(small) = i32::try_from(value) {
                        assert_eq!(read_i32(&out), Ok((small, out.len())));
                    }
                }
            }
        }
    }

    #[test]
    fn numbers_that_do_not_fit_their_type_are_rejected() {
        assert_eq!(read_u32(&[0xff; 6]), Err(VarintError::TooLong));
        assert_eq!(read_u32(&[0xff, 0xff, 0xff, 0xff, 0x1f]), Err(VarintError::TooLong));
        assert_eq!(read_u64(&[0xff; 11]), Err(VarintError::TooLong));
        assert_eq!(
            read_u64(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02]),
            Err(VarintError::TooLong)
        );
    }
}
