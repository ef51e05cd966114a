//! The most connections of one address: `max.connections.per.ip` and its overrides.

use std::collections::BTreeMap;
use std::net::IpAddr;

use super::live::Values;
use super::number;

const PER_IP: &str = "max.connections.per.ip";
const OVERRIDES: &str = "max.connections.per.ip.overrides";
/// Kafka's default: in effect no limit.
const NO_LIMIT: usize = i32::MAX as usize;

/// The most connections that a node has of each address.
#[derive(Clone, Debug)]
pub(crate) struct ConnectionsPerIp {
    max: usize,
    overrides: BTreeMap<IpAddr, usize>,
}

impl Default for ConnectionsPerIp {
    fn default() -> Self {
        Self { max: NO_LIMIT, overrides: BTreeMap::new() }
    }
}

impl ConnectionsPerIp {
    /// The limit of an address.
    pub(crate) fn max_of(&self, address: IpAddr) -> usize {
        self.overrides.get(&address.to_canonical()).copied().unwrap_or(self.max)
    }

    /// Applies a property. Returns `false` if none has this name.
    pub(super) fn apply(&mut self, name: &str, value: &str) -> Result<bool, String> {
        match name {
            PER_IP => self.max = number(name, value, 0, i64::from(i32::MAX))? as usize,
            OVERRIDES => self.overrides = overrides(value)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Refuses a limit of 0 without exceptions, as Kafka does: no client could connect, not even to change it.
    pub(crate) fn check(&self) -> Result<(), String> {
        if self.max > 0 || !self.overrides.is_empty() {
            return Ok(());
        }
        Err(format!("{PER_IP}=`0`: no client could connect; set {OVERRIDES}, too"))
    }

    /// [`Self::check`] with the settings of these resources, of which the last one has priority.
    pub(super) fn check_with<'a>(
        mut self,
        resources: impl IntoIterator<Item = &'a Values>,
    ) -> Result<(), String> {
        for values in resources {
            for name in [PER_IP, OVERRIDES] {
                if let Some(value) = values.get(name) {
                    // A value that an earlier version stored without a check has no effect.
                    let _ = self.apply(name, value);
                }
            }
        }
        self.check()
    }

    /// Returns `true` if a limit of `before` is another one in `after`.
    pub(super) fn differ(before: &Values, after: &Values) -> bool {
        [PER_IP, OVERRIDES].into_iter().any(|name| before.get(name) != after.get(name))
    }
}

/// Parses `10.0.0.1:100,::1:5`. Kafka resolves names of hosts, too; a lookup here would hold up all clients.
fn overrides(value: &str) -> Result<BTreeMap<IpAddr, usize>, String> {
    let entries = value.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    let parsed = entries.map(|entry| {
        let parsed = entry.rsplit_once(':').and_then(|(address, count)| {
            let address = address.trim().trim_start_matches('[').trim_end_matches(']');
            let count = count.trim().parse::<usize>().ok().filter(|count| *count <= NO_LIMIT)?;
            Some((address.parse::<IpAddr>().ok()?.to_canonical(), count))
        });
        parsed.ok_or_else(|| {
            format!("{OVERRIDES}: `{entry}`: use ADDRESS:NUMBER with an IP address and a number from 0 to {NO_LIMIT}")
        })
    });
    parsed.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn an_address_has_its_own_limit_or_that_of_all() {
        let mut limits = ConnectionsPerIp::default();
        assert_eq!(limits.max_of(address("10.0.0.1")), NO_LIMIT);
        assert_eq!(limits.apply(PER_IP, "7"), Ok(true));
        assert_eq!(limits.apply(OVERRIDES, "10.0.0.1:100, ::1:5,[2001:db8::1]:0"), Ok(true));
        let all = ["10.0.0.1", "::ffff:10.0.0.1", "::1", "2001:db8::1", "10.0.0.2"];
        assert_eq!(all.map(|text| limits.max_of(address(text))), [100, 100, 5, 0, 7]);
        assert_eq!((limits.apply(OVERRIDES, ""), limits.max_of(address("::1"))), (Ok(true), 7));
        for wrong in ["10.0.0.1", "host:1", "10.0.0.1:-1", "10.0.0.1:x", "10.0.0.1:2147483648", ":1"] {
            let refused = limits.apply(OVERRIDES, wrong).expect_err("no such override");
            assert!(refused.contains(&format!("`{wrong}`")), "{refused}");
        }
        assert!(limits.apply(PER_IP, "-1").is_err());
    }

    #[test]
    fn a_limit_of_0_needs_exceptions() {
        let values = |pairs: &[(&str, &str)]| -> Values {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let check = |limits: &ConnectionsPerIp, resources: &[&Values]| {
            limits.clone().check_with(resources.iter().copied())
        };
        let limits = ConnectionsPerIp::default();
        let (none, zero, no_exceptions) = (values(&[]), values(&[(PER_IP, "0")]), values(&[(OVERRIDES, "")]));
        let (one, exceptions) = (values(&[(PER_IP, "1")]), values(&[(OVERRIDES, "::1:5")]));
        assert!(limits.check().is_ok() && check(&limits, &[&none]).is_ok());
        assert!(check(&limits, &[&zero]).is_err());
        assert!(check(&limits, &[&zero, &exceptions]).is_ok() && check(&limits, &[&zero, &one]).is_ok());
        assert!(check(&limits, &[&exceptions, &zero, &no_exceptions]).is_err(), "the exceptions go");
        let mut limited = limits;
        assert_eq!((limited.apply(PER_IP, "0"), limited.apply(OVERRIDES, "::1:5")), (Ok(true), Ok(true)));
        assert!(limited.check().is_ok() && check(&limited, &[&none]).is_ok());
        assert!(check(&limited, &[&no_exceptions]).is_err());
        assert!(check(&limited, &[&no_exceptions, &one]).is_ok(), "the limit goes, too");
        assert!(ConnectionsPerIp::differ(&none, &zero) && !ConnectionsPerIp::differ(&zero, &zero));
        assert!(ConnectionsPerIp::differ(&exceptions, &no_exceptions));
    }
}
