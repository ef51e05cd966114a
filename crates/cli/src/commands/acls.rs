//! `ottla acls`.

use ottla_client::{Acl, AclFilter, AclOperation, AclPermission, Admin, PatternType, ResourceType, Timeouts};
use serde_json::{Value, json};

use crate::choices::{OPERATIONS, completed};
use crate::connect::{ConnectArgs, admin, runtime};
use crate::failure::Failure;
use crate::listing::{Listing, OutputArgs};
use crate::output::{self, counted};

/// The name of the one resource of type cluster.
const CLUSTER_NAME: &str = "kafka-cluster";

/// Lists, adds and deletes ACLs
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Acls {
    /// Prints ACLs
    ///
    /// Example: `ottla acls list --topic orders`
    List {
        #[command(flatten)]
        filter: FilterArgs,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        connect: ConnectArgs,
    },
    Add(AddArgs),
    /// Deletes ACLs, and prints them
    ///
    /// At least one condition is required; `--all` deletes every ACL. The name of a resource is that of the ACL itself, unless there is
    /// `--prefixed` or `--matching`. Succeeds with a note on standard error if no ACL matches. Example:
    /// `ottla acls delete --topic orders --principal User:anna`
    Delete {
        #[command(flatten)]
        filter: FilterArgs,
        /// Deletes every ACL
        #[arg(long)]
        all: bool,
        #[command(flatten)]
        output: OutputArgs,
        #[command(flatten)]
        connect: ConnectArgs,
    },
}

/// Adds ACLs: one for each resource, principal and operation
///
/// An ACL for READ, WRITE, DELETE or ALTER allows DESCRIBE as well. A denial wins. Example:
/// `ottla acls add --principal User:anna --operation read --topic orders --group billing`
#[derive(Debug, clap::Args)]
pub(crate) struct AddArgs {
    #[command(flatten)]
    resources: ResourceArgs,
    /// The names are prefixes
    #[arg(long)]
    prefixed: bool,
    /// The principal, `User:NAME`, or `User:*` for everyone; may be repeated
    #[arg(long, required = true, value_name = "PRINCIPAL")]
    principal: Vec<String>,
    /// The address of the clients
    #[arg(long, default_value = "*", value_name = "ADDRESS")]
    host: String,
    /// The operation, by Kafka's name, or `all`; may be repeated
    #[arg(long, required = true, value_name = "OPERATION", value_parser = completed(operation, OPERATIONS), hide_possible_values = true)]
    operation: Vec<AclOperation>,
    /// Denies the operations instead of allowing them
    #[arg(long)]
    deny: bool,
    #[command(flatten)]
    connect: ConnectArgs,
}

/// The resources of an ACL.
#[derive(Debug, clap::Args)]
pub(crate) struct ResourceArgs {
    /// A topic, or `*` for all; may be repeated
    #[arg(short, long, value_name = "TOPIC")]
    topic: Vec<String>,
    /// A group, or `*` for all; may be repeated
    #[arg(long, value_name = "GROUP")]
    group: Vec<String>,
    /// A transactional id, or `*` for all; may be repeated
    #[arg(long, value_name = "ID")]
    transactional_id: Vec<String>,
    /// The cluster
    #[arg(long)]
    cluster: bool,
}

/// Conditions for ACLs. All of them must hold.
#[derive(Debug, clap::Args)]
pub(crate) struct FilterArgs {
    #[command(flatten)]
    resources: ResourceArgs,
    /// Only ACLs whose names are no prefixes
    #[arg(long, conflicts_with_all = ["prefixed", "matching"])]
    literal: bool,
    /// Only ACLs whose names are prefixes
    #[arg(long, conflicts_with = "matching")]
    prefixed: bool,
    /// All ACLs that apply to the resource: its own, those of a prefix of its name, and those for all names
    #[arg(long)]
    matching: bool,
    /// Only ACLs of this principal
    #[arg(long, value_name = "PRINCIPAL")]
    principal: Option<String>,
    /// Only ACLs for this address
    #[arg(long, value_name = "ADDRESS")]
    host: Option<String>,
    /// Only ACLs with this operation
    #[arg(long, value_name = "OPERATION", value_parser = completed(operation, OPERATIONS), hide_possible_values = true)]
    operation: Option<AclOperation>,
    /// Only ACLs that allow their operation
    #[arg(long, conflicts_with = "deny")]
    allow: bool,
    /// Only ACLs that deny their operation
    #[arg(long)]
    deny: bool,
}

fn operation(text: &str) -> Result<AclOperation, String> {
    let name = text.to_ascii_uppercase().replace('-', "_");
    let known = || (2..=15).map(AclOperation::from_code);
    known().find(|operation| operation.name() == name).ok_or_else(|| {
        let names: Vec<&str> = known().map(AclOperation::name).collect();
        format!("no operation is called `{text}`: use {}", names.join(", ").to_lowercase())
    })
}

pub(crate) fn run(acls: &Acls) -> Result<(), Failure> {
    runtime()?.block_on(async {
        match acls {
            Acls::List { filter, output, connect } => {
                list(&admin(connect).await?, &filter.filters(), *output).await
            }
            Acls::Add(args) => add(args).await,
            Acls::Delete { filter, all, output, connect } => {
                if filter.is_empty() != *all {
                    return Err(Failure::usage("give a condition for the ACLs to delete, or --all"));
                }
                delete(&admin(connect).await?, &filter.filters_to_delete(), *all, *output).await
            }
        }
    })
}

impl ResourceArgs {
    /// The types and names of the resources.
    fn named(&self) -> Vec<(ResourceType, &str)> {
        let topics = self.topic.iter().map(|name| (ResourceType::Topic, name.as_str()));
        let groups = self.group.iter().map(|name| (ResourceType::Group, name.as_str()));
        let ids = self.transactional_id.iter().map(|name| (ResourceType::TransactionalId, name.as_str()));
        let cluster = self.cluster.then_some((ResourceType::Cluster, CLUSTER_NAME));
        topics.chain(groups).chain(ids).chain(cluster).collect()
    }
}

impl FilterArgs {
    fn is_empty(&self) -> bool {
        self.filters() == [AclFilter::any()]
    }

    /// The filters of a deletion. As in Kafka's tool, a name without a pattern leaves the ACLs of prefixes alone.
    fn filters_to_delete(&self) -> Vec<AclFilter> {
        let mut filters = self.filters();
        for filter in &mut filters {
            if filter.name.is_some() && filter.pattern == PatternType::Any {
                filter.pattern = PatternType::Literal;
            }
        }
        filters
    }

    /// A filter for each resource.
    fn filters(&self) -> Vec<AclFilter> {
        let pattern = match (self.literal, self.prefixed, self.matching) {
            (true, _, _) => PatternType::Literal,
            (false, true, _) => PatternType::Prefixed,
            (false, false, true) => PatternType::Match,
            (false, false, false) => PatternType::Any,
        };
        let permission = match (self.allow, self.deny) {
            (true, _) => AclPermission::Allow,
            (false, true) => AclPermission::Deny,
            (false, false) => AclPermission::Any,
        };
        let any = AclFilter {
            pattern,
            principal: self.principal.clone(),
            host: self.host.clone(),
            operation: self.operation.unwrap_or(AclOperation::Any),
            permission,
            ..AclFilter::any()
        };
        let named = self.resources.named().into_iter();
        let named =
            named.map(|(resource, name)| AclFilter { resource, name: Some(name.to_owned()), ..any.clone() });
        let filters: Vec<AclFilter> = named.collect();
        if filters.is_empty() { vec![any] } else { filters }
    }
}

async fn list(admin: &Admin, filters: &[AclFilter], output: OutputArgs) -> Result<(), Failure> {
    let mut found = Vec::new();
    for filter in filters {
        found.extend(admin.describe_acls(filter, Timeouts::default()).await?);
    }
    print(found, output)
}

fn print(mut acls: Vec<Acl>, output: OutputArgs) -> Result<(), Failure> {
    acls.sort_unstable();
    acls.dedup();
    let mut listing =
        Listing::new(["resource", "name", "pattern", "principal", "host", "operation", "permission"]);
    for acl in &acls {
        listing.row(row(acl));
    }
    listing.print(output.output)
}

fn row(acl: &Acl) -> [Value; 7] {
    let Acl { resource, name, pattern, principal, host, operation, permission } = acl;
    [
        json!(resource.name()),
        json!(name),
        json!(pattern.name()),
        json!(principal),
        json!(host),
        json!(operation.name()),
        json!(permission.name()),
    ]
}

async fn add(args: &AddArgs) -> Result<(), Failure> {
    let resources = args.resources.named();
    if resources.is_empty() {
        return Err(Failure::usage("give a resource: --topic, --group, --transactional-id or --cluster"));
    }
    let mut acls = Vec::new();
    for (resource, name) in resources {
        for principal in &args.principal {
            acls.extend(args.operation.iter().map(|operation| Acl {
                resource,
                name: name.to_owned(),
                pattern: if args.prefixed { PatternType::Prefixed } else { PatternType::Literal },
                principal: principal.clone(),
                host: args.host.clone(),
                operation: *operation,
                permission: if args.deny { AclPermission::Deny } else { AclPermission::Allow },
            }));
        }
    }
    let admin = admin(&args.connect).await?;
    for (_, created) in admin.create_acls(&acls, Timeouts::default()).await? {
        created?;
    }
    output::print(&format!("added {}\n", counted(acls.len() as u64, "ACL")))
}

async fn delete(admin: &Admin, filters: &[AclFilter], all: bool, output: OutputArgs) -> Result<(), Failure> {
    let mut deleted = Vec::new();
    for (_, acls) in admin.delete_acls(filters, Timeouts::default()).await? {
        for (acl, result) in acls? {
            result?;
            deleted.push(acl);
        }
    }
    if !deleted.is_empty() {
        return print(deleted, output);
    }
    // Scripts remove ACLs that may be gone already: as with `kafka-acls.sh --remove`, that is a success. The condition may also be
    // misspelt.
    output::note(if all {
        "there are no ACLs: nothing was deleted"
    } else {
        "no ACL matches the conditions: nothing was deleted; `ottla acls list` prints the ACLs"
    });
    Ok(())
}
