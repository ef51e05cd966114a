//! The names of the files of a segment.

pub(crate) const LOG_SUFFIX: &str = "log";
pub(crate) const INDEX_SUFFIX: &str = "index";
pub(crate) const TIME_INDEX_SUFFIX: &str = "timeindex";
pub(crate) const TXN_INDEX_SUFFIX: &str = "txnindex";
pub(crate) const SNAPSHOT_SUFFIX: &str = "snapshot";

/// `00000000000000000042.log` and its like: Kafka's twenty digits.
pub(crate) fn file_name(base_offset: i64, suffix: &str) -> String {
    format!("{base_offset:020}.{suffix}")
}

/// The offset and the suffix of a name that [`file_name`] made.
pub(crate) fn parse_name(name: &str) -> Option<(i64, &str)> {
    let (digits, suffix) = name.split_once('.')?;
    let sound = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    sound.then(|| digits.parse().ok().map(|offset| (offset, suffix)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_twenty_digits() {
        assert_eq!(file_name(42, LOG_SUFFIX), "00000000000000000042.log");
        assert_eq!(parse_name("00000000000000000042.timeindex"), Some((42, "timeindex")));
        for name in
            ["42.log", "0000000000000000004x.log", "leader-epoch-checkpoint", "00000000000000000042", ""]
        {
            assert_eq!(parse_name(name), None, "{name}");
        }
    }
}
