//! The parts of a broker that read its small files, for fuzz targets. Only with the feature `fuzzing`.

/// A file `cleaner-offset-checkpoint` with these bytes, which is written again and read again.
pub fn cleaner_points(bytes: &[u8]) {
    let Some(points) = crate::cleaner_points::decode(bytes) else { return };
    let written = crate::cleaner_points::encode(&points);
    assert_eq!(
        crate::cleaner_points::decode(written.as_bytes()),
        Some(points),
        "what was written can be read"
    );
}
