//! DescribeUserScramCredentials and AlterUserScramCredentials. Listeners with SCRAM authenticate with the credentials.

use std::collections::{BTreeMap, BTreeSet};

use ottla_protocol::ErrorCode;
use ottla_protocol::messages::alter_user_scram_credentials::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse, AlterUserScramCredentialsResult,
};
use ottla_protocol::messages::describe_user_scram_credentials::{
    CredentialInfo, DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
};

use super::{Api, RequestContext};
use crate::cluster::Cluster;
use crate::cluster::scram_credentials::ScramChange;

impl Api for DescribeUserScramCredentialsRequest {
    async fn handle(self, context: RequestContext) -> DescribeUserScramCredentialsResponse {
        let known = &context.cluster().scram_credentials;
        let mut uses: BTreeMap<String, usize> = BTreeMap::new();
        for user in self.users.into_iter().flatten() {
            *uses.entry(user.name).or_default() += 1;
        }
        // No user at all asks for every user.
        if uses.is_empty() {
            uses = known.users().into_iter().map(|user| (user, 1)).collect();
        }
        let results = uses.into_iter().map(|(user, uses)| {
            let credentials = known.of_user(&user);
            let refusal = if uses > 1 {
                let reason = format!("user `{user}` is {uses} times in the request");
                Some((ErrorCode::DuplicateResource, reason))
            } else if credentials.is_empty() {
                Some((ErrorCode::ResourceNotFound, format!("user `{user}` has no SCRAM credentials")))
            } else {
                None
            };
            if let Some((error_code, reason)) = refusal {
                let error_message = Some(reason);
                return DescribeUserScramCredentialsResult {
                    user,
                    error_code,
                    error_message,
                    ..Default::default()
                };
            }
            let infos = credentials
                .into_iter()
                .map(|(mechanism, iterations)| CredentialInfo { mechanism: mechanism as i8, iterations });
            let credential_infos = infos.collect();
            DescribeUserScramCredentialsResult { user, credential_infos, ..Default::default() }
        });
        DescribeUserScramCredentialsResponse { results: results.collect(), ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> DescribeUserScramCredentialsResponse {
        let results = self.users.into_iter().flatten().map(|user| DescribeUserScramCredentialsResult {
            user: user.name,
            error_code: code,
            error_message: None,
            ..Default::default()
        });
        DescribeUserScramCredentialsResponse {
            error_code: code,
            error_message: None,
            results: results.collect(),
            ..Default::default()
        }
    }
}

impl Api for AlterUserScramCredentialsRequest {
    async fn handle(self, context: RequestContext) -> AlterUserScramCredentialsResponse {
        let changes = changes_of(self);
        if !context.cluster().has_scram() {
            return without_scram(&changes);
        }
        let alter = move |cluster: &Cluster| cluster.alter_scram_credentials(changes);
        let outcomes = context.cluster().change_topics(alter).await;
        let results = outcomes.into_iter().map(|(user, outcome)| {
            let (error_code, error_message) = match outcome {
                Ok(()) => (ErrorCode::None, None),
                Err((code, reason)) => (code, Some(reason)),
            };
            AlterUserScramCredentialsResult { user, error_code, error_message }
        });
        AlterUserScramCredentialsResponse { results: results.collect(), ..Default::default() }
    }

    fn refuse(self, _context: &RequestContext, code: ErrorCode) -> AlterUserScramCredentialsResponse {
        let results = changes_of(self).into_iter().map(|change| AlterUserScramCredentialsResult {
            user: change.user().to_owned(),
            error_code: code,
            error_message: Some(code.message().to_owned()),
        });
        AlterUserScramCredentialsResponse { results: results.collect(), ..Default::default() }
    }
}

/// The response below the first level of `metadata.version` with SCRAM: each user once, as in Kafka.
fn without_scram(changes: &[ScramChange]) -> AlterUserScramCredentialsResponse {
    let users: BTreeSet<&str> = changes.iter().map(ScramChange::user).collect();
    let results = users.into_iter().map(|user| AlterUserScramCredentialsResult {
        user: user.to_owned(),
        error_code: ErrorCode::UnsupportedVersion,
        error_message: Some("The current metadata.version does not support SCRAM".to_owned()),
    });
    AlterUserScramCredentialsResponse { results: results.collect(), ..Default::default() }
}

fn changes_of(request: AlterUserScramCredentialsRequest) -> Vec<ScramChange> {
    let deletions = request
        .deletions
        .into_iter()
        .map(|deletion| ScramChange::Delete { user: deletion.name, mechanism: deletion.mechanism });
    let upsertions = request.upsertions.into_iter().map(|upsertion| ScramChange::Set {
        user: upsertion.name,
        mechanism: upsertion.mechanism,
        iterations: upsertion.iterations,
        salt: upsertion.salt,
        salted_password: upsertion.salted_password,
    });
    deletions.chain(upsertions).collect()
}
