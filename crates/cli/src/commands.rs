//! The subcommands, one file each.

pub(crate) mod acls;
pub(crate) mod broker;
pub(crate) mod clients;
pub(crate) mod cluster;
pub(crate) mod completions;
pub(crate) mod consume;
pub(crate) mod demo;
pub(crate) mod doctor;
pub(crate) mod fault;
pub(crate) mod groups;
pub(crate) mod log;
pub(crate) mod logdirs;
pub(crate) mod man;
pub(crate) mod produce;
pub(crate) mod properties;
pub(crate) mod quotas;
pub(crate) mod run;
mod server_properties;
pub(crate) mod topics;
pub(crate) mod transactions;
pub(crate) mod users;
