//! Changes to a sound frame. The same random numbers make the same changes.

/// Values that have been wrong at the edges of lengths, counts and offsets.
const EDGES: [i32; 8] = [-1, 0, 1, i32::MAX, i32::MIN, 0x7fff, 0x1_0000, 0x0200_0000];

/// Changes a frame (with its size) in one to three places. In most cases the size is right afterwards: a wrong size alone
/// would hide the other changes.
pub(crate) fn mutate(frame: &[u8], other: &[u8], random: &mut fastrand::Rng) -> Vec<u8> {
    let mut body = frame[4..].to_vec();
    for _ in 0..random.usize(1..=3) {
        change(&mut body, &other[4..], random);
    }
    let mut size = body.len() as i32;
    if random.u8(..) < 8 {
        size = size.wrapping_add(random.i32(-20..20));
    }
    [&size.to_be_bytes()[..], &body].concat()
}

fn change(body: &mut Vec<u8>, other: &[u8], random: &mut fastrand::Rng) {
    if body.len() < 5 {
        body.extend_from_slice(other);
        return;
    }
    // The first bytes are the API and its version: changes there make another request of it.
    let first = if random.u8(..) < 16 { 0 } else { 4 };
    let at = random.usize(first..body.len());
    match random.u8(0..8) {
        0 => body[at] ^= 1 << random.u8(0..8),
        1 => body[at] = random.choice([0, 1, 0x7f, 0x80, 0xfe, 0xff]).unwrap_or(0),
        2 => {
            let edge = random.choice(EDGES).unwrap_or(0).to_be_bytes();
            let end = body.len().min(at + 4);
            body[at..end].copy_from_slice(&edge[..end - at]);
        }
        3 => body.truncate(at),
        4 => drop(body.drain(at..body.len().min(at + random.usize(1..=8)))),
        5 => {
            let inserted: Vec<u8> = (0..random.usize(1..=8)).map(|_| random.u8(..)).collect();
            body.splice(at..at, inserted);
        }
        6 => {
            let end = body.len().min(at + random.usize(1..=64));
            let again = body[at..end].to_vec();
            body.splice(at..at, again);
        }
        _ => {
            let from = random.usize(..other.len());
            body.truncate(at);
            body.extend_from_slice(&other[from..]);
        }
    }
}
