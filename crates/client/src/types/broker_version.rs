//! The broker versions of `broker.version.fallback`.

/// The values of `broker.version.fallback`: releases that changed requests.
#[derive(Clone, Copy, Debug, Default, Eq, Ord, PartialEq, PartialOrd)]
pub enum BrokerVersion {
    /// 0.10, librdkafka's default: treated as 0.11, because such brokers cannot store this client's record batches.
    V0_10,
    /// 0.11.0: the oldest release that supports this client's record batches.
    #[default]
    V0_11,
    /// 1.0.
    V1_0,
    /// 1.1.
    V1_1,
    /// 2.0.
    V2_0,
    /// 2.1, and later releases with the requests of 2.1.
    V2_1,
}

impl BrokerVersion {
    /// Parses `0.11.0.0`, `2.1` and similar texts. Older releases than 0.10 count as 0.10; `None` for invalid
    /// versions.
    pub fn parse(text: &str) -> Option<Self> {
        let mut parts = text.split('.').map(str::parse::<u16>);
        let (major, minor) = (parts.next()?.ok()?, parts.next().unwrap_or(Ok(0)).ok()?);
        if parts.any(|part| part.is_err()) {
            return None;
        }
        match (major, minor) {
            (0, ..=10) => Some(Self::V0_10),
            (0, _) => Some(Self::V0_11),
            (1, 0) => Some(Self::V1_0),
            (1, _) => Some(Self::V1_1),
            (2, 0) => Some(Self::V2_0),
            _ => Some(Self::V2_1),
        }
    }

    /// The release, as a value of `broker.version.fallback`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::V0_10 => "0.10.0",
            Self::V0_11 => "0.11.0",
            Self::V1_0 => "1.0.0",
            Self::V1_1 => "1.1.0",
            Self::V2_0 => "2.0.0",
            Self::V2_1 => "2.1.0",
        }
    }
}
