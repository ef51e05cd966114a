//! Authentication.

use crate::config::property::{
    Access, Property, choice, flag, millis, optional_path, optional_string, seconds, secret, string,
};
use crate::security::assertion::JWT_BEARER;
use crate::security::kerberos::KINIT;
use crate::security::{AssertionAlgorithm, Mechanism, OauthCloud, OauthGrant, OauthMethod};

/// Kafka's names of the SASL mechanisms.
const MECHANISMS: &[&str] = &["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"];

const LOGINS: &str = "every_way_in_and_every_refusal";
const UNSECURED: &str = "an_unsecured_token_has_the_configured_claims";
const KERBEROS: &str = "a_client_logs_in_with_a_keytab_and_a_wrong_one_is_named";
const COMMAND: &str = "a_kinit_command_gets_the_values_of_properties";
const ASSERTIONS: &str = "a_token_endpoint_gets_an_assertion_in_place_of_a_secret";
const CLAIMS: &str = "an_assertion_has_the_configured_claims_and_a_signature_that_verifies";

pub(super) const ROWS: &[Property] = &[
    Property::choice("sasl.mechanism", MECHANISMS, "GSSAPI")
        .alias(&["sasl.mechanisms"])
        .high()
        .text("The mechanism of authentication: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER or GSSAPI (Kerberos). GSSAPI needs the system's library `libgssapi_krb5.so.2` (Debian's package `libgssapi-krb5-2`) or Heimdal's `libgssapi.so.3`, which are loaded when a client is created.")
        .effective(
            LOGINS,
            Access {
                set: |config, value| {
                    let named = |mechanism: &Mechanism| mechanism.name() == value.text();
                    config.security.sasl.mechanism = Mechanism::ALL.into_iter().find(named);
                    Ok(())
                },
                get: |config| config.security.sasl.mechanism.unwrap_or_default().name().to_owned(),
            },
        ),
    Property::string("sasl.username", "").high().text("The name for PLAIN and SCRAM.").effective(LOGINS, optional_string!(security.sasl.username)),
    Property::string("sasl.password", "")
        .high()
        .secret()
        .text("The password for PLAIN and SCRAM.")
        .effective(LOGINS, secret!(security.sasl.password)),
    Property::string("sasl.kerberos.service.name", "kafka")
        .text("The brokers' Kerberos name: the part before the slash. The part behind it is the host name of the broker's address.")
        .effective(KERBEROS, string!(security.sasl.kerberos.service_name)),
    Property::string("sasl.kerberos.principal", "kafkaclient")
        .text("This client's Kerberos name. The client uses its tickets, or those of the default cache if no cache has them.")
        .effective(KERBEROS, string!(security.sasl.kerberos.principal)),
    Property::string("sasl.kerberos.kinit.cmd", KINIT)
        .text("The shell command that gets or renews a Kerberos ticket. The client runs it when it is created, and again after each `sasl.kerberos.min.time.before.relogin`. `%{NAME}` is replaced by the value of the property NAME, as it is: the shell interprets it. If empty, the client uses the tickets that it finds.")
        .effective(COMMAND, string!(security.sasl.kerberos.kinit_command)),
    Property::string("sasl.kerberos.keytab", "")
        .text("File of Kerberos keys, for `sasl.kerberos.kinit.cmd`.")
        .effective(KERBEROS, string!(security.sasl.kerberos.keytab)),
    Property::int("sasl.kerberos.min.time.before.relogin", 0, 86_400_000, "60000")
        .text("The time between two runs of `sasl.kerberos.kinit.cmd`. With 0, the command runs only until it has succeeded once.")
        .effective("a_command_runs_at_the_start_and_after_each_interval", millis!(security.sasl.kerberos.min_time_before_relogin)),
    Property::string("sasl.oauthbearer.config", "")
        .secret()
        .text("The claims of unsigned tokens, as `key=value` separated by spaces: principal (needed), principalClaimName, scope, scopeClaimName, lifeSeconds, extension_NAME.")
        .effective(UNSECURED, secret!(security.sasl.oauthbearer.config)),
    Property::bool("enable.sasl.oauthbearer.unsecure.jwt", "false")
        .text("If `true`, the client creates unsigned tokens, for development: production brokers refuse them.")
        .effective(UNSECURED, flag!(security.sasl.oauthbearer.unsecured_jwt)),
    Property::choice("sasl.oauthbearer.method", &["default", "oidc"], "default")
        .text("The source of tokens: a function, or a token endpoint.")
        .effective(LOGINS, choice!(security.sasl.oauthbearer.method, [("default", OauthMethod::Default), ("oidc", OauthMethod::Oidc)])),
    Property::string("sasl.oauthbearer.client.id", "")
        .alias(&["sasl.oauthbearer.client.credentials.client.id"])
        .text("This client's name at the token endpoint.")
        .effective(LOGINS, optional_string!(security.sasl.oauthbearer.client_id)),
    Property::string("sasl.oauthbearer.client.secret", "")
        .alias(&["sasl.oauthbearer.client.credentials.client.secret"])
        .secret()
        .text("This client's secret at the token endpoint.")
        .effective(LOGINS, secret!(security.sasl.oauthbearer.client_secret)),
    Property::string("sasl.oauthbearer.scope", "").text("The scope to request for the token.").effective(LOGINS, optional_string!(security.sasl.oauthbearer.scope)),
    Property::string("sasl.oauthbearer.extensions", "")
        .text("Extensions sent with the token, as `name=value` separated by commas.")
        .effective("extensions_go_beside_the_token", string!(security.sasl.oauthbearer.extensions)),
    Property::string("sasl.oauthbearer.token.endpoint.url", "")
        .text("The URL of the token endpoint: https only.")
        .effective(LOGINS, optional_string!(security.sasl.oauthbearer.token_endpoint_url)),
    Property::string("sasl.oauthbearer.sub.claim.name", "sub")
        .text("The token's claim that names the principal, which logs show.")
        .effective(
            "the_principal_is_in_the_claim_that_is_named",
            Access {
                set: |config, value| {
                    value.text().clone_into(&mut config.security.sasl.oauthbearer.sub_claim_name);
                    Ok(())
                },
                get: |config| match config.security.sasl.oauthbearer.sub_claim_name.as_str() {
                    "" => "sub".into(),
                    named => named.to_owned(),
                },
            },
        ),
    Property::choice("sasl.oauthbearer.grant.type", &["client_credentials", JWT_BEARER], "client_credentials")
        .text("The proof of the client's identity for the token endpoint: its id and secret, or an assertion (RFC 7523).")
        .effective(ASSERTIONS, choice!(security.sasl.oauthbearer.grant, [("client_credentials", OauthGrant::ClientCredentials), (JWT_BEARER, OauthGrant::JwtBearer)])),
    Property::choice("sasl.oauthbearer.assertion.algorithm", &["RS256", "ES256"], "RS256")
        .text("The signature algorithm of assertions.")
        .effective(CLAIMS, choice!(security.sasl.oauthbearer.assertions.algorithm, [("RS256", AssertionAlgorithm::Rs256), ("ES256", AssertionAlgorithm::Es256)])),
    Property::string("sasl.oauthbearer.assertion.private.key.file", "")
        .text("File of the key that signs assertions (PEM). It is read for each request.")
        .effective(ASSERTIONS, optional_path!(security.sasl.oauthbearer.assertions.private_key_location)),
    Property::string("sasl.oauthbearer.assertion.private.key.passphrase", "")
        .secret()
        .text("Password of that key.")
        .effective(ASSERTIONS, secret!(security.sasl.oauthbearer.assertions.private_key_password)),
    Property::string("sasl.oauthbearer.assertion.private.key.pem", "")
        .secret()
        .text("The key that signs assertions itself (PEM).")
        .effective(CLAIMS, secret!(security.sasl.oauthbearer.assertions.private_key_pem)),
    Property::string("sasl.oauthbearer.assertion.file", "")
        .text("File of a finished assertion. It is read for each request; the other properties of assertions have no effect then.")
        .effective("an_assertion_of_a_file_is_read_for_each_request", optional_path!(security.sasl.oauthbearer.assertions.file)),
    Property::string("sasl.oauthbearer.assertion.claim.aud", "")
        .text("The audience of assertions.")
        .effective(CLAIMS, optional_string!(security.sasl.oauthbearer.assertions.audience)),
    Property::string("sasl.oauthbearer.assertion.claim.iss", "")
        .text("The issuer of assertions.")
        .effective(CLAIMS, optional_string!(security.sasl.oauthbearer.assertions.issuer)),
    Property::string("sasl.oauthbearer.assertion.claim.sub", "")
        .text("The subject of assertions.")
        .effective(CLAIMS, optional_string!(security.sasl.oauthbearer.assertions.subject)),
    Property::string("sasl.oauthbearer.assertion.jwt.template.file", "")
        .text("File of a JSON object with the objects `header` and `payload`: further fields and claims of assertions.")
        .effective("claims_of_the_settings_replace_those_of_the_template", optional_path!(security.sasl.oauthbearer.assertions.template_file)),
    Property::int("sasl.oauthbearer.assertion.claim.exp.seconds", 1, 2_147_483_647, "300")
        .text("The time for which assertions are valid.")
        .effective(CLAIMS, seconds!(security.sasl.oauthbearer.assertions.expires_after)),
    Property::bool("sasl.oauthbearer.assertion.claim.jti.include", "false")
        .text("If `true`, assertions have a random id.")
        .effective(CLAIMS, flag!(security.sasl.oauthbearer.assertions.with_id)),
    Property::int("sasl.oauthbearer.assertion.claim.nbf.seconds", 0, 2_147_483_647, "60")
        .text("The time before their creation from which assertions are valid.")
        .effective(CLAIMS, seconds!(security.sasl.oauthbearer.assertions.valid_before)),
    Property::choice(
        "sasl.oauthbearer.metadata.authentication.type",
        &["none", "azure_imds", "aws_iam"],
        "none",
    )
    .text("The cloud provider whose service issues the token. `azure_imds` asks the metadata service of an Azure machine with the parameters after `query=` in `sasl.oauthbearer.config`; `aws_iam` asks AWS STS (`GetWebIdentityToken`) with the parameters `region` and `audience` in `sasl.oauthbearer.config`, and optionally `duration_seconds`, `signing_algorithm`, `sts_endpoint` and `tag_NAME`; the credentials are those of the environment, the pod, the container or the machine.")
    .effective("a_token_function_is_asked_for_tokens", choice!(security.sasl.oauthbearer.cloud, [("none", OauthCloud::None), ("azure_imds", OauthCloud::AzureImds), ("aws_iam", OauthCloud::AwsIam)])),
];
