//! Users' SCRAM credentials: listed, set and deleted. Passwords stay here; brokers get what proves them.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use ottla_protocol::messages::alter_user_scram_credentials::{
    AlterUserScramCredentialsRequest, ScramCredentialDeletion, ScramCredentialUpsertion,
};
use ottla_protocol::messages::describe_user_scram_credentials::{
    DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, UserName,
};

use super::operation::{Operation, Repeat, Target, wrong_controller};
use super::{Admin, Each, ScramMechanism, Timeouts, in_order, owned, refused};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::net::sasl::scram::salted_password;
use crate::security::Secret;

const SALT_BYTES: usize = 64;

/// A credential that a user has; its secret is the broker's.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ScramCredential {
    /// With which mechanism.
    pub mechanism: ScramMechanism,
    /// How often the password is hashed.
    pub iterations: i32,
}

/// A change of a user's credential.
#[derive(Clone, Debug)]
pub enum ScramChange {
    /// The user logs in with this password from now on.
    Set {
        /// The user.
        user: String,
        /// With which mechanism.
        mechanism: ScramMechanism,
        /// How often the password is hashed: 4096 to 16384 on Apache Kafka.
        iterations: i32,
        /// The password.
        password: Secret,
        /// What it is mixed with; `None` for random bytes.
        salt: Option<Vec<u8>>,
    },
    /// The user logs in with this mechanism no longer.
    Delete {
        /// The user.
        user: String,
        /// With which mechanism.
        mechanism: ScramMechanism,
    },
}

impl ScramChange {
    /// Whose credential it is.
    pub fn user(&self) -> &str {
        match self {
            Self::Set { user, .. } | Self::Delete { user, .. } => user,
        }
    }
}

impl Admin {
    /// The credentials of these users, or of all who have any (`None`); answers per user.
    ///
    /// # Errors
    /// When no user has an answer of its own: no broker answered in time, or refused us all.
    pub async fn describe_scram_credentials(
        &self,
        users: Option<&[&str]>,
        timeouts: Timeouts,
    ) -> Result<Each<String, Vec<ScramCredential>>, Error> {
        let users = users.map(owned);
        let work = move |cluster: Rc<Cluster>| async move {
            describe(&Operation::new(cluster, "describe_scram_credentials", timeouts), users).await
        };
        self.ask("describe_scram_credentials", work).await
    }

    /// Sets and deletes credentials; answers per user, in the order asked for. Apache Kafka takes one change per user in
    /// a call, and refuses a user with more (`DUPLICATE_RESOURCE`).
    ///
    /// Hashes passwords in the calling thread: that takes some milliseconds for each.
    ///
    /// # Errors
    /// When no user has an answer of its own: the controller did not answer in time, or does not know the request;
    /// [`Error::Config`] for a mechanism that this client does not know.
    pub async fn alter_scram_credentials(
        &self,
        changes: &[ScramChange],
        timeouts: Timeouts,
    ) -> Result<Each<String, ()>, Error> {
        let mut users: Vec<String> = Vec::new();
        let (mut upsertions, mut deletions) = (Vec::new(), Vec::new());
        for change in changes {
            if !users.iter().any(|user| user == change.user()) {
                users.push(change.user().to_owned());
            }
            match change {
                ScramChange::Set { user, mechanism, iterations, password, salt } => {
                    upsertions.push(upsertion(user, *mechanism, *iterations, password, salt.as_deref())?);
                }
                ScramChange::Delete { user, mechanism } => deletions
                    .push(ScramCredentialDeletion { name: user.clone(), mechanism: mechanism.code() }),
            }
        }
        let request = AlterUserScramCredentialsRequest { deletions, upsertions };
        let work = move |cluster: Rc<Cluster>| async move {
            alter(&Operation::new(cluster, "alter_scram_credentials", timeouts), request, users).await
        };
        self.ask("alter_scram_credentials", work).await
    }
}

fn upsertion(
    user: &str,
    mechanism: ScramMechanism,
    iterations: i32,
    password: &Secret,
    salt: Option<&[u8]>,
) -> Result<ScramCredentialUpsertion, Error> {
    let salt = salt.map_or_else(random_salt, |salt| Ok(salt.to_vec()))?;
    let rounds = u32::try_from(iterations).unwrap_or(0);
    let salted = salted_password(mechanism, password, &salt, rounds).ok_or_else(|| {
        Error::Config(format!(
            "credential of user `{user}`: {iterations} iterations of mechanism {mechanism}"
        ))
    })?;
    Ok(ScramCredentialUpsertion {
        name: user.to_owned(),
        mechanism: mechanism.code(),
        iterations,
        salt: salt.into(),
        salted_password: Bytes::from(salted),
    })
}

fn random_salt() -> Result<Vec<u8>, Error> {
    let mut salt = vec![0; SALT_BYTES];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut salt)
        .map_err(|_| Error::Config("a salt: the system gives no random numbers".into()))?;
    Ok(salt)
}

async fn describe(
    operation: &Operation,
    users: Option<Vec<String>>,
) -> Result<Each<String, Vec<ScramCredential>>, Error> {
    let make = |_version: i16| DescribeUserScramCredentialsRequest {
        users: users.as_ref().map(|users| users.iter().map(|name| UserName { name: name.clone() }).collect()),
    };
    let again = |response: &DescribeUserScramCredentialsResponse| wrong_controller([response.error_code]);
    let response = operation.call(Target::Controller, 0..=0, Repeat::Yes, make, again).await?;
    refused("SCRAM credentials", response.error_code, response.error_message.as_deref())?;
    let answers = response.results.into_iter().map(|result| {
        let what = format!("SCRAM credentials of user `{}`", result.user);
        let refused = refused(&what, result.error_code, result.error_message.as_deref());
        let credentials = result.credential_infos.into_iter().map(|credential| ScramCredential {
            mechanism: ScramMechanism::from_code(credential.mechanism),
            iterations: credential.iterations,
        });
        let credentials: Vec<_> = credentials.collect();
        (result.user, refused.map(|()| credentials))
    });
    let answers: BTreeMap<_, _> = answers.collect();
    Ok(match users {
        Some(users) => in_order(users, answers, "SCRAM credentials of user"),
        None => answers.into_iter().collect(),
    })
}

async fn alter(
    operation: &Operation,
    request: AlterUserScramCredentialsRequest,
    users: Vec<String>,
) -> Result<Each<String, ()>, Error> {
    let make = |_version: i16| request.clone();
    let response = operation
        .call(Target::Controller, 0..=0, Repeat::Yes, make, |response| {
            wrong_controller(response.results.iter().map(|result| result.error_code))
        })
        .await?;
    let answers = response.results.into_iter().map(|result| {
        let what = format!("SCRAM credentials of user `{}`", result.user);
        (result.user, refused(&what, result.error_code, result.error_message.as_deref()))
    });
    let answers: BTreeMap<_, _> = answers.collect();
    Ok(in_order(users, answers, "SCRAM credentials of user"))
}
