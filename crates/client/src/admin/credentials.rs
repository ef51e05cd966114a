//! SCRAM credentials of users: described, set and deleted. Brokers get only the salted hash of a password.

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
use super::{Admin, KeyedResults, ScramMechanism, Timeouts, in_order, owned, refused};
use crate::cluster::Cluster;
use crate::error::Error;
use crate::net::sasl::scram::salted_password;
use crate::security::{Mechanism, Secret};

const SALT_BYTES: usize = 64;

/// A SCRAM credential of a user. Brokers do not disclose its secret.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct ScramCredential {
    /// The mechanism.
    pub mechanism: ScramMechanism,
    /// The number of iterations of the hash.
    pub iterations: i32,
}

/// A change of a user's credential.
#[derive(Clone, Debug)]
pub enum ScramChange {
    /// Sets the user's password for this mechanism.
    Set {
        /// The user.
        user: String,
        /// The mechanism.
        mechanism: ScramMechanism,
        /// The number of iterations of the hash: 4096 to 16384 on Apache Kafka.
        iterations: i32,
        /// The password.
        password: Secret,
        /// The salt; `None` for random bytes.
        salt: Option<Vec<u8>>,
    },
    /// Deletes the user's credential for this mechanism.
    Delete {
        /// The user.
        user: String,
        /// The mechanism.
        mechanism: ScramMechanism,
    },
}

impl ScramChange {
    /// The user whose credential changes.
    pub fn user(&self) -> &str {
        match self {
            Self::Set { user, .. } | Self::Delete { user, .. } => user,
        }
    }
}

impl Admin {
    /// Returns the SCRAM credentials of these users, or of all users (`None`), with a result per user.
    ///
    /// # Errors
    /// The whole call fails if no broker responds in time, or if the broker refuses the request.
    pub async fn describe_scram_credentials(
        &self,
        users: Option<&[&str]>,
        timeouts: Timeouts,
    ) -> Result<KeyedResults<String, Vec<ScramCredential>>, Error> {
        let users = users.map(owned);
        let work = move |cluster: Rc<Cluster>| async move {
            describe(&Operation::new(cluster, "describe_scram_credentials", timeouts), users).await
        };
        self.ask("describe_scram_credentials", work).await
    }

    /// Sets and deletes credentials. Returns a result per user, in the order of the request. Apache Kafka accepts one
    /// change per user and call, and refuses a user with more (`DUPLICATE_RESOURCE`).
    ///
    /// Hashes the passwords in the calling thread, which takes some milliseconds each.
    ///
    /// # Errors
    /// The whole call fails if the controller does not respond in time, or does not support the request.
    /// [`Error::Config`] for an unknown mechanism.
    pub async fn alter_scram_credentials(
        &self,
        changes: &[ScramChange],
        timeouts: Timeouts,
    ) -> Result<KeyedResults<String, ()>, Error> {
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
    let sasl_mechanism = match mechanism {
        ScramMechanism::Sha256 => Some(Mechanism::ScramSha256),
        ScramMechanism::Sha512 => Some(Mechanism::ScramSha512),
        ScramMechanism::Unknown(_) => None,
    };
    let salted = sasl_mechanism.and_then(|sasl| salted_password(sasl, password, &salt, rounds));
    let salted = salted.ok_or_else(|| {
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
) -> Result<KeyedResults<String, Vec<ScramCredential>>, Error> {
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
) -> Result<KeyedResults<String, ()>, Error> {
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
