//! `ottla quotas`.

use ottla_client::{Admin, QuotaAlteration, QuotaEntity, QuotaMatch, Timeouts};
use serde_json::json;

use crate::connect::{ConnectArgs, admin, runtime};
use crate::failure::Failure;
use crate::failures::Failures;
use crate::listing::{Listing, OutputArgs};
use crate::output::print;
use crate::properties::last_of_each;

/// The name of the default entity in options: no user, client id or address has it.
const DEFAULT: &str = "<default>";

/// Lists, sets and deletes the quotas of users, client ids and IP addresses
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Quotas {
    /// Prints quotas
    ///
    /// Example: `ottla quotas list --user anna`
    List {
        #[command(flatten)]
        entity: EntityArgs,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Sets quotas of a user, a client id, both, or an IP address
    ///
    /// The quotas are `producer_byte_rate` and `consumer_byte_rate` in bytes per second, `request_percentage` of one processor,
    /// `controller_mutation_rate` in partitions per second, and for addresses `connection_creation_rate` per second. Example:
    /// `ottla quotas set --user anna producer_byte_rate=1048576`
    Set {
        #[command(flatten)]
        entity: EntityArgs,
        /// The quotas; the last value of a name applies
        #[arg(required = true, value_name = "QUOTA=VALUE", value_parser = quota)]
        quotas: Vec<(String, f64)>,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    /// Deletes quotas of a user, a client id, both, or an IP address
    ///
    /// Example: `ottla quotas delete --user anna producer_byte_rate`
    Delete {
        #[command(flatten)]
        entity: EntityArgs,
        /// The names of the quotas
        #[arg(required = true, value_name = "QUOTA")]
        quotas: Vec<String>,
        #[command(flatten)]
        connect: ConnectArgs,
    },
}

/// The clients that have a quota.
#[derive(Debug, clap::Args)]
pub(crate) struct EntityArgs {
    /// A user, or `<default>` for the users without a quota of their own
    #[arg(long, value_name = "USER")]
    user: Option<String>,
    /// A client id, or `<default>`
    #[arg(long, value_name = "ID")]
    client_id: Option<String>,
    /// An IP address, or `<default>`
    #[arg(long, value_name = "ADDRESS", conflicts_with_all = ["user", "client_id"])]
    ip: Option<String>,
}

/// Parses `QUOTA=VALUE`. Rust's numbers include `NaN` and `inf`, which are no rates.
fn quota(text: &str) -> Result<(String, f64), String> {
    let (name, value) = text.split_once('=').ok_or("use QUOTA=VALUE")?;
    match value.parse::<f64>() {
        Ok(number) if number.is_finite() && number >= 0.0 => Ok((name.to_owned(), number)),
        _ => Err(format!("`{value}` is no value of `{name}`: use a finite number that is not negative")),
    }
}

pub(crate) fn run(quotas: &Quotas) -> Result<(), Failure> {
    runtime()?.block_on(async {
        match quotas {
            Quotas::List { entity, output, connect } => list(&admin(connect).await?, entity, *output).await,
            Quotas::Set { entity, quotas, connect } => {
                let changes = last_of_each(quotas).into_iter().map(|(name, value)| (name, Some(value)));
                print(&alter(&admin(connect).await?, entity.entity()?, changes.collect()).await?)
            }
            Quotas::Delete { entity, quotas, connect } => {
                delete(&admin(connect).await?, entity, quotas).await
            }
        }
    })
}

impl EntityArgs {
    fn parts(&self) -> impl Iterator<Item = (&'static str, &str)> {
        let parts = [("user", &self.user), ("client-id", &self.client_id), ("ip", &self.ip)];
        parts.into_iter().filter_map(|(kind, name)| Some((kind, name.as_deref()?)))
    }

    /// The conditions that select the clients' quotas.
    fn conditions(&self) -> Vec<(&'static str, QuotaMatch)> {
        let condition = |name: &str| match name {
            DEFAULT => QuotaMatch::Default,
            name => QuotaMatch::Name(name.to_owned()),
        };
        self.parts().map(|(kind, name)| (kind, condition(name))).collect()
    }

    /// `user anna, client-id till`.
    fn text(&self) -> String {
        self.parts().map(|(kind, name)| format!("{kind} `{name}`")).collect::<Vec<_>>().join(", ")
    }

    fn entity(&self) -> Result<QuotaEntity, Failure> {
        let named = |name: &'_ str| (name != DEFAULT).then(|| name.to_owned());
        let names = self.parts().map(|(kind, name)| (kind.to_owned(), named(name)));
        let entity = QuotaEntity { names: names.collect() };
        if entity.names.is_empty() {
            return Err(Failure::usage("give the clients: --user, --client-id or --ip"));
        }
        Ok(entity)
    }
}

async fn list(admin: &Admin, entity: &EntityArgs, output: OutputArgs) -> Result<(), Failure> {
    let conditions = entity.conditions();
    let mut listing = Listing::new(["user", "client_id", "ip", "quota", "value"]);
    for (entity, values) in admin.describe_client_quotas(&conditions, false, Timeouts::default()).await? {
        let name = |kind: &str| {
            let name = entity.names.get(kind).map(|name| name.as_deref().unwrap_or(DEFAULT));
            json!(name)
        };
        for (quota, value) in values {
            listing.row([name("user"), name("client-id"), name("ip"), json!(quota), json!(value)]);
        }
    }
    listing.print(output.output)
}

/// Deletes quotas. A quota that the entity does not have is probably misspelt.
async fn delete(admin: &Admin, entity: &EntityArgs, quotas: &[String]) -> Result<(), Failure> {
    let named = entity.entity()?;
    let described = admin.describe_client_quotas(&entity.conditions(), true, Timeouts::default()).await?;
    let has = |name: &str| {
        described
            .iter()
            .any(|(found, values)| *found == named && values.iter().any(|(quota, _)| quota == name))
    };
    let mut failures = Failures::default();
    // The broker refuses a name that comes twice.
    let names = quotas.iter().enumerate().filter(|(index, name)| !quotas[..*index].contains(name));
    let (there, missing): (Vec<&String>, Vec<&String>) =
        names.map(|(_, name)| name).partition(|name| has(name));
    for name in missing {
        failures.push(Failure::failed(format!(
            "{} has no quota `{name}`: `ottla quotas list` prints the quotas",
            entity.text()
        )));
    }
    if !there.is_empty() {
        let changes = there.into_iter().map(|name| (name.clone(), None)).collect();
        match alter(admin, named, changes).await {
            Ok(text) => failures.print(&text),
            Err(failure) => failures.push(failure),
        }
    }
    failures.result()
}

/// Sets quotas, or deletes those without a value. Returns the text to print.
async fn alter(
    admin: &Admin,
    entity: QuotaEntity,
    changes: Vec<(String, Option<f64>)>,
) -> Result<String, Failure> {
    let text: String = changes
        .iter()
        .map(|(name, value)| match value {
            Some(value) => format!("set {name}={value}\n"),
            None => format!("deleted {name}\n"),
        })
        .collect();
    let alteration = QuotaAlteration { entity, changes };
    for (_, altered) in admin.alter_client_quotas(&[alteration], Timeouts::default()).await? {
        altered?;
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Only the broker refused them, and some brokers do not.
    #[test]
    fn a_quota_is_a_finite_number_that_is_not_negative() {
        assert_eq!(quota("request_percentage=12.5"), Ok(("request_percentage".to_owned(), 12.5)));
        for value in ["NaN", "inf", "-inf", "infinity", "1e999", "-1", "-0.5", "", "many"] {
            let refused = quota(&format!("request_percentage={value}")).expect_err("no rate");
            assert!(
                refused.starts_with(&format!("`{value}` is no value of `request_percentage`")),
                "{refused}"
            );
        }
    }
}
