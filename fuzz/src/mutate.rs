//! Mutations of inputs, the same ones in every run.

use fastrand::Rng;

/// Numbers at which lengths and counts change their meaning.
const EDGES: [i64; 12] = [
    0,
    1,
    -1,
    i8::MIN as i64,
    i8::MAX as i64,
    i16::MIN as i64,
    i16::MAX as i64,
    i32::MIN as i64,
    i32::MAX as i64,
    i64::MIN,
    i64::MAX,
    1 << 20,
];

/// Changes `input` in one to four places. `other` is an input of the same target, to take parts from.
pub fn mutate(input: &mut Vec<u8>, other: &[u8], rng: &mut Rng) {
    for _ in 0..rng.usize(1..=4) {
        if input.is_empty() {
            input.push(rng.u8(..));
        }
        let at = rng.usize(..input.len());
        match rng.u8(..8) {
            0 => input[at] ^= 1 << rng.u8(..8),
            1 => input[at] = rng.u8(..),
            2 => input.truncate(at),
            3 => input.insert(at, rng.u8(..)),
            4 => {
                let end = input.len().min(at + rng.usize(1..=8));
                input.drain(at..end);
            }
            5 => {
                let bytes = EDGES[rng.usize(..EDGES.len())].to_be_bytes();
                let width = [1, 2, 4, 8][rng.usize(..4)];
                for (byte, edge) in input[at..].iter_mut().zip(&bytes[8 - width..]) {
                    *byte = *edge;
                }
            }
            6 => {
                let end = input.len().min(at + rng.usize(1..=32));
                let part = input[at..end].to_vec();
                let to = rng.usize(..=input.len());
                input.splice(to..to, part);
            }
            _ => {
                let from = rng.usize(..=other.len());
                let end = other.len().min(from + rng.usize(1..=32));
                input.splice(at..at, other[from..end].iter().copied());
            }
        }
    }
}
