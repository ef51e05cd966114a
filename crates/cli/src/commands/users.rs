//! `ottla users`: the users of SCRAM, whose credentials the cluster stores.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use ottla_client::{Admin, ScramChange, ScramMechanism, Secret, Timeouts};
use serde_json::json;

use crate::connect::{ConnectArgs, admin, runtime};
use crate::failure::Failure;
use crate::listing::{Listing, ListingArgs};
use crate::output::print;
use crate::password;

/// Kafka's least number.
const ITERATIONS_MIN: u32 = 4096;
/// The most that a broker stores.
const ITERATIONS_MAX: i64 = 16384;

/// Manages the users of SCRAM
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Users {
    Add(AddArgs),
    List(ListArgs),
    Delete(DeleteArgs),
}

/// Adds a user, or sets the password of one
///
/// Asks for the password without showing it. The broker gets a salted hash. Example: `ottla users add alice`
#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    /// The user
    user: String,
    /// A file whose first line is the password
    #[arg(long, value_name = "FILE")]
    password_file: Option<PathBuf>,
    /// The mechanism; may be repeated [default: both]
    #[arg(long, value_name = "SCRAM-SHA-256|SCRAM-SHA-512", value_parser = mechanism)]
    mechanism: Vec<ScramMechanism>,
    /// Iterations of the hash; more make a stolen hash harder to guess, and each login of a client slower
    #[arg(long, value_name = "N", default_value_t = ITERATIONS_MIN,
          value_parser = clap::value_parser!(u32).range(i64::from(ITERATIONS_MIN)..=ITERATIONS_MAX))]
    iterations: u32,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// Prints the users with their mechanisms
///
/// Example: `ottla users list --output json`
#[derive(Debug, clap::Args)]
pub(crate) struct ListArgs {
    #[command(flatten)]
    listing: ListingArgs,
}

/// Deletes the credentials of a user; connections that have logged in stay open
///
/// Example: `ottla users delete alice`
#[derive(Debug, clap::Args)]
pub(crate) struct DeleteArgs {
    /// The user
    user: String,
    /// Deletes only the credential of this mechanism; may be repeated
    #[arg(long, value_name = "SCRAM-SHA-256|SCRAM-SHA-512", value_parser = mechanism)]
    mechanism: Vec<ScramMechanism>,
    #[command(flatten)]
    connect: ConnectArgs,
}

pub(crate) fn run(users: &Users) -> Result<(), Failure> {
    match users {
        Users::Add(args) => {
            // Before the contact: a user who types slowly keeps no connection open.
            let password = new_password(&args.user, args.password_file.as_deref())?;
            runtime()?.block_on(add(args, password))
        }
        Users::List(args) => runtime()?.block_on(list(args)),
        Users::Delete(args) => runtime()?.block_on(delete(args)),
    }
}

async fn add(args: &AddArgs, password: Secret) -> Result<(), Failure> {
    let admin = admin(&args.connect).await?;
    let mechanisms = if args.mechanism.is_empty() { ALL.to_vec() } else { args.mechanism.clone() };
    for mechanism in mechanisms {
        let change = ScramChange::Set {
            user: args.user.clone(),
            mechanism,
            iterations: args.iterations as i32,
            password: password.clone(),
            salt: None,
        };
        alter(&admin, change).await?;
    }
    print(&format!("user `{}` can log in\n", args.user))
}

async fn list(args: &ListArgs) -> Result<(), Failure> {
    let admin = args.listing.admin().await?;
    let mut listing = Listing::new(["user", "mechanism", "iterations"]);
    let described = admin.describe_scram_credentials(None, Timeouts::default()).await?;
    for (user, credentials) in described {
        for credential in credentials? {
            listing.row([json!(user), json!(name(credential.mechanism)), json!(credential.iterations)]);
        }
    }
    listing.print(args.listing.format())
}

async fn delete(args: &DeleteArgs) -> Result<(), Failure> {
    let admin = admin(&args.connect).await?;
    let mut mechanisms: BTreeSet<&str> = args.mechanism.iter().map(|mechanism| name(*mechanism)).collect();
    if mechanisms.is_empty() {
        for (_, credentials) in
            admin.describe_scram_credentials(Some(&[&args.user]), Timeouts::default()).await?
        {
            mechanisms.extend(credentials?.iter().map(|credential| name(credential.mechanism)));
        }
    }
    for mechanism in ALL.into_iter().filter(|mechanism| mechanisms.contains(name(*mechanism))) {
        alter(&admin, ScramChange::Delete { user: args.user.clone(), mechanism }).await?;
    }
    print(&format!("user `{}` is deleted\n", args.user))
}

async fn alter(admin: &Admin, change: ScramChange) -> Result<(), Failure> {
    for (_, result) in admin.alter_scram_credentials(&[change], Timeouts::default()).await? {
        result?;
    }
    Ok(())
}

const ALL: [ScramMechanism; 2] = [ScramMechanism::Sha256, ScramMechanism::Sha512];

fn name(mechanism: ScramMechanism) -> &'static str {
    match mechanism {
        ScramMechanism::Sha256 => "SCRAM-SHA-256",
        ScramMechanism::Sha512 => "SCRAM-SHA-512",
        _ => "unknown",
    }
}

fn mechanism(text: &str) -> Result<ScramMechanism, String> {
    let found = ALL.into_iter().find(|mechanism| name(*mechanism).eq_ignore_ascii_case(text));
    found.ok_or_else(|| format!("`{text}` is no mechanism: use SCRAM-SHA-256 or SCRAM-SHA-512"))
}

/// The password of a user, from a file or from the terminal.
fn new_password(user: &str, file: Option<&Path>) -> Result<Secret, Failure> {
    let password = if let Some(path) = file {
        password::read_file(path)?
    } else {
        let question = format!("Password of {user}: ");
        let password = password::ask(&question, "use --password-file FILE")?;
        if password.expose() != password::ask("Again: ", "use --password-file FILE")?.expose() {
            return Err(Failure::usage("the passwords differ"));
        }
        password
    };
    if password.expose().is_empty() {
        return Err(Failure::usage("the password is empty"));
    }
    Ok(password)
}
