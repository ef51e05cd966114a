//! Properties that name parts of OpenSSL. This client has rustls in its place, so it can load none of them.

/// The provider with the usual algorithms, which are rustls's as well.
const PROVIDER: &str = "default";

/// `ssl.providers` and `ssl.engine.location`. Both are kept as they are set and looked at when a client with TLS is created:
/// programs set them for every protocol.
#[derive(Clone, Debug, Default)]
pub(crate) struct OpenSslSettings {
    pub(crate) providers: String,
    pub(crate) engine_location: String,
}

impl OpenSslSettings {
    /// Refuses what only OpenSSL could load.
    pub(crate) fn check(&self) -> Result<(), String> {
        let foreign = self.providers.split(',').map(str::trim).find(|name| !["", PROVIDER].contains(name));
        if let Some(name) = foreign {
            return Err(format!(
                "ssl.providers=`{}`: the provider `{name}` is OpenSSL's, which is no part of this client: leave it out, or name `{PROVIDER}` only",
                self.providers
            ));
        }
        if !self.engine_location.is_empty() {
            return Err(format!(
                "ssl.engine.location=`{}`: OpenSSL engine initialization failed in this client, of which OpenSSL is no part: leave it unset, and name a key with ssl.key.location",
                self.engine_location
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(providers: &str, engine_location: &str) -> Result<(), String> {
        let settings =
            OpenSslSettings { providers: providers.to_owned(), engine_location: engine_location.to_owned() };
        settings.check()
    }

    #[test]
    fn only_the_default_provider_is_there() {
        for there in ["", "default", " default , default"] {
            assert_eq!(check(there, ""), Ok(()), "{there}");
        }
        let error = check("default,fips", "").expect_err("OpenSSL's");
        assert!(error.starts_with("ssl.providers=`default,fips`: the provider `fips` is"), "{error}");
        let error = check("", "/usr/lib/engine.so").expect_err("OpenSSL's");
        assert!(error.contains("engine initialization failed in"), "{error}");
    }
}
