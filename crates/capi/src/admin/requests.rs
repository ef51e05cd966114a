//! The requests: checked here, made by the client, answered by an event.

use std::any::Any;
use std::ffi::{CStr, CString, c_char};
use std::sync::Arc;

use ottla_client::{
    Acl, AclFilter, Admin, ConfigChange, ConfigResource, DeleteBefore, DescribeOptions, Error, NewPartitions,
    NewTopic, OffsetAndMetadata, ScramChange, Timeouts, TopicPartition,
};

use super::checks::{
    DUPLICATE_PARTITIONS, all_different, check_changes, check_groups, check_resources, names_broker, one,
    refusal_code, some,
};
use super::layout::texts;
use super::{List, acls, code, configs, group_descriptions, groups, layout, offsets, scram, topics, words};
use crate::client::handle::Handle;
use crate::ffi::c_strings::c_string;
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::queue::op::{Op, Opaque, Outcome};
use crate::queue::op_queue::OpQueue;

/// A request on its way to the client.
struct Call {
    handle: Arc<Handle>,
    queue: Arc<OpQueue>,
    kind: rd_kafka_event_type_t,
    options: rd_kafka_AdminOptions_t,
}

impl Call {
    fn answer(&self, err: rd_kafka_resp_err_t, text: CString, result: Box<dyn Any + Send>) {
        let opaque = Opaque(self.options.opaque());
        self.queue.push(Op::Result(Outcome { kind: self.kind, err, text, opaque, result }));
    }
}

/// The client of a request, the queue for its event, and the name of the C function.
struct Target {
    function: &'static str,
    rk: *mut rd_kafka_t,
    rkqu: *mut rd_kafka_queue_t,
}

/// Checks and sends a request. An event reports the result, unless there is no client or no queue.
///
/// # Safety
/// `options` is NULL or alive.
unsafe fn request<Q, V, R, F>(
    target: Target,
    options: *const rd_kafka_AdminOptions_t,
    kind: rd_kafka_event_type_t,
    check: impl FnOnce() -> Result<Q, String>,
    ask: impl FnOnce(Admin, rd_kafka_AdminOptions_t, Q) -> F,
    read: impl FnOnce(V) -> R + Send + 'static,
) where
    F: Future<Output = Result<V, Error>> + Send + 'static,
    R: Any + Send,
{
    let Target { function, rk, rkqu } = target;
    let queue = rd_kafka_queue_t::of(rkqu, function).map(|open| open.queue.clone());
    let (Some(handle), Some(queue)) = (Handle::shared(rk, function), queue) else { return };
    // SAFETY: `options` is NULL or a `rd_kafka_AdminOptions_t` of this library, not yet destroyed (the contract of this
    // function, above).
    let options = unsafe { options.as_ref() };
    let options = options.cloned().unwrap_or_else(|| rd_kafka_AdminOptions_t::new(RD_KAFKA_ADMIN_OP_ANY));
    let call = Call { handle, queue, kind, options };
    let question = match check() {
        Ok(question) => question,
        Err(reason) => {
            return call.answer(refusal_code(&reason), c_string(&reason), Box::new(()));
        }
    };
    let handle = call.handle.clone();
    let Some(client) = handle.client() else {
        return call.answer(RD_KAFKA_RESP_ERR__DESTROY, CString::default(), Box::new(()));
    };
    let asking = ask(client.admin(), call.options.clone(), question);
    let Call { queue, kind, options, .. } = call;
    let asked = Asked { queue, kind, opaque: Some(Opaque(options.opaque())) };
    handle.admin.start(async move {
        let (err, text, result): (_, _, Box<dyn Any + Send>) = match asking.await {
            Ok(answer) => (RD_KAFKA_RESP_ERR_NO_ERROR, CString::default(), Box::new(read(answer))),
            Err(error) if code(&error) == RD_KAFKA_RESP_ERR__TIMED_OUT => {
                (RD_KAFKA_RESP_ERR__TIMED_OUT, timeout_text(asked.kind, &error).into(), Box::new(()))
            }
            Err(error) => (code(&error), c_string(&words(&error)), Box::new(())),
        };
        asked.answer(err, text, result);
    });
}

/// Returns the text of a request without a response. Programs compare it: it names the broker that was waited for.
fn timeout_text(kind: rd_kafka_event_type_t, error: &Error) -> &'static CStr {
    if matches!(error, Error::TimedOut { what, .. } if what == NAMED_BROKER) {
        return c"Failed while waiting for broker: Local: Timed out";
    }
    match kind {
        RD_KAFKA_EVENT_DELETERECORDS_RESULT | RD_KAFKA_EVENT_LISTOFFSETS_RESULT => {
            c"Failed to query partition leaders: Local: Timed out"
        }
        RD_KAFKA_EVENT_ALTERCONSUMERGROUPOFFSETS_RESULT
        | RD_KAFKA_EVENT_LISTCONSUMERGROUPOFFSETS_RESULT
        | RD_KAFKA_EVENT_DELETECONSUMERGROUPOFFSETS_RESULT
        | RD_KAFKA_EVENT_DESCRIBECONSUMERGROUPS_RESULT
        | RD_KAFKA_EVENT_DELETEGROUPS_RESULT => {
            c"Failed while waiting for response from broker: Local: Timed out"
        }
        _ => c"Failed while waiting for controller: Local: Timed out",
    }
}

/// [`Error::TimedOut`] of a request for the configuration of a broker.
const NAMED_BROKER: &str = "the broker of a configuration";

/// Returns the error of a request for configurations. One with a broker's waits for that broker, and not for the controller.
fn of_resources<'a>(error: Error, mut resources: impl Iterator<Item = &'a ConfigResource>) -> Error {
    if code(&error) == RD_KAFKA_RESP_ERR__TIMED_OUT && resources.any(names_broker) {
        return Error::TimedOut { what: NAMED_BROKER.to_owned(), waited_ms: 0 };
    }
    error
}

/// Refuses a request without items once a broker responds: as in the original, whose requests all wait for the controller first.
async fn refuse_none(admin: &Admin, count: usize, timeouts: Timeouts, text: &str) -> Result<(), Error> {
    if count > 0 {
        return Ok(());
    }
    admin.describe_cluster_with(DescribeOptions { timeouts, authorized_operations: false }).await?;
    Err(Error::Config(text.to_owned()))
}

/// A question that is under way: it is answered, or its client goes, which is said in its place.
struct Asked {
    queue: Arc<OpQueue>,
    kind: rd_kafka_event_type_t,
    /// Nothing once it is answered.
    opaque: Option<Opaque>,
}

impl Asked {
    fn answer(mut self, err: rd_kafka_resp_err_t, text: CString, result: Box<dyn Any + Send>) {
        self.push(err, text, result);
    }

    fn push(&mut self, err: rd_kafka_resp_err_t, text: CString, result: Box<dyn Any + Send>) {
        if let Some(opaque) = self.opaque.take() {
            self.queue.push(Op::Result(Outcome { kind: self.kind, err, text, opaque, result }));
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        let text = c_string("Handle is terminating: Success");
        self.push(RD_KAFKA_RESP_ERR__DESTROY, text, Box::new(()));
    }
}

/// The things of an array of C's; NULLs among them are left out.
///
/// # Safety
/// NULL, or `count` pointers, each NULL or alive.
unsafe fn things<'a, T>(array: *mut *mut T, count: usize) -> Vec<&'a T> {
    if array.is_null() {
        return Vec::new();
    }
    // SAFETY: `array` points to `count` pointers to objects of its type (the contract of this function, above).
    (0..count).filter_map(|index| unsafe { (*array.add(index)).as_ref() }).collect()
}

fn refs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// The error of a request for configurations without resources.
const NO_RESOURCES: &str = "No config resources specified";

/// Writes one function that takes an array and its length.
macro_rules! array_requests {
    ($($name:ident($type:ty, $kind:ident): |$things:ident| $check:expr,
        |$admin:ident, $options:ident, $question:ident: $asked:ty| $ask:expr, $read:expr;)*) => {$(
        #[on_panic(())]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(
            rk: *mut rd_kafka_t,
            array: *mut *mut $type,
            count: usize,
            options: *const rd_kafka_AdminOptions_t,
            rkqu: *mut rd_kafka_queue_t,
        ) {
            let check = || {
                if array.is_null() && count > 0 {
                    return Err(format!("the array is NULL, and its length is {count}"));
                }
                // SAFETY: `array` points to `count` pointers to objects of its type (rdkafka.h, every function of
                // this macro).
                let $things = unsafe { things(array, count) };
                $check
            };
            let ask = |$admin: Admin, $options: rd_kafka_AdminOptions_t, $question: $asked| async move { $ask };
            // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `options` is NULL or a
            // `rd_kafka_AdminOptions_t` of this library, not yet destroyed; `rkqu` is NULL or a queue of this
            // library, not yet destroyed (rdkafka.h, every function of this macro).
            unsafe { request(Target { function: FUNCTION, rk, rkqu }, options, $kind, check, ask, $read) };
        }
    )*};
}

array_requests! {
    rd_kafka_CreateTopics(rd_kafka_NewTopic_t, RD_KAFKA_EVENT_CREATETOPICS_RESULT):
        |topics| Ok(topics.iter().map(|topic| topic.0.clone()).collect::<Vec<_>>()),
        |admin, options, topics: Vec<NewTopic>| {
            refuse_none(&admin, topics.len(), options.timeouts(), "No topics to create").await?;
            admin.create_topics_with(&topics, options.change()).await
        },
        topics::topic_results;
    rd_kafka_DeleteTopics(rd_kafka_DeleteTopic_t, RD_KAFKA_EVENT_DELETETOPICS_RESULT):
        |topics| Ok(topics.iter().map(|topic| topic.0.clone()).collect::<Vec<_>>()),
        |admin, options, topics: Vec<String>| {
            refuse_none(&admin, topics.len(), options.timeouts(), "No topics to delete").await?;
            admin.delete_topics_with(&refs(&topics), options.timeouts()).await
        },
        topics::topic_results;
    rd_kafka_CreatePartitions(rd_kafka_NewPartitions_t, RD_KAFKA_EVENT_CREATEPARTITIONS_RESULT):
        |topics| Ok(topics.iter().map(|topic| topic.0.clone()).collect::<Vec<_>>()),
        |admin, options, topics: Vec<NewPartitions>| {
            refuse_none(&admin, topics.len(), options.timeouts(), "No partitions to create").await?;
            admin.create_partitions_with(&topics, options.change()).await
        },
        topics::topic_results;
    rd_kafka_AlterConfigs(rd_kafka_ConfigResource_t, RD_KAFKA_EVENT_ALTERCONFIGS_RESULT):
        |resources| {
            let resources: Vec<_> = resources.iter().map(|resource| resource.replaced()).collect();
            check_resources(resources.iter().map(|(resource, _)| resource)).map(|()| resources)
        },
        |admin, options, resources: Vec<(ConfigResource, Vec<(String, String)>)>| {
            refuse_none(&admin, resources.len(), options.timeouts(), NO_RESOURCES).await?;
            let altered = admin.alter_configs(&resources, options.change()).await;
            altered.map_err(|error| of_resources(error, resources.iter().map(|(resource, _)| resource)))
        },
        configs::altered;
    rd_kafka_IncrementalAlterConfigs(rd_kafka_ConfigResource_t, RD_KAFKA_EVENT_INCREMENTALALTERCONFIGS_RESULT):
        |resources| {
            let resources: Vec<_> = resources.iter().map(|resource| resource.changed()).collect();
            check_changes(&resources).map(|()| resources)
        },
        |admin, options, resources: Vec<(ConfigResource, Vec<(String, ConfigChange)>)>| {
            refuse_none(&admin, resources.len(), options.timeouts(), NO_RESOURCES).await?;
            let altered = admin.incremental_alter_configs(&resources, options.change()).await;
            altered.map_err(|error| of_resources(error, resources.iter().map(|(resource, _)| resource)))
        },
        configs::altered;
    rd_kafka_DescribeConfigs(rd_kafka_ConfigResource_t, RD_KAFKA_EVENT_DESCRIBECONFIGS_RESULT):
        |resources| {
            let resources: Vec<_> = resources.iter().map(|resource| resource.resource()).collect();
            check_resources(resources.iter()).map(|()| resources)
        },
        |admin, options, resources: Vec<ConfigResource>| {
            refuse_none(&admin, resources.len(), options.timeouts(), NO_RESOURCES).await?;
            let what = ottla_client::DescribeConfigs {
                timeouts: options.timeouts(), synonyms: true, documentation: false };
            let described = admin.describe_configs(&resources, what).await;
            described.map_err(|error| of_resources(error, resources.iter()))
        },
        configs::described;
    rd_kafka_DeleteRecords(rd_kafka_DeleteRecords_t, RD_KAFKA_EVENT_DELETERECORDS_RESULT):
        |requests| one(requests, "DeleteRecords").and_then(|request| {
            let before = some(request.before(), "No records to delete")?;
            all_different(before.iter().map(|(at, _)| at), DUPLICATE_PARTITIONS).map(|()| before)
        }),
        |admin, options, before: Vec<(TopicPartition, DeleteBefore)>| admin.delete_records(&before, options.timeouts()).await,
        offsets::deleted;
    rd_kafka_DeleteGroups(rd_kafka_DeleteGroup_t, RD_KAFKA_EVENT_DELETEGROUPS_RESULT):
        |groups| {
            let groups: Vec<_> = groups.iter().map(|group| group.0.clone()).collect();
            check_groups(groups, "No groups to delete")
        },
        |admin, options, groups: Vec<String>| admin.delete_groups_with(&refs(&groups), options.timeouts()).await,
        groups::deleted;
    rd_kafka_ListConsumerGroupOffsets(rd_kafka_ListConsumerGroupOffsets_t, RD_KAFKA_EVENT_LISTCONSUMERGROUPOFFSETS_RESULT):
        |requests| one(requests, "ListConsumerGroupOffsets").and_then(|request| {
            let partitions = request.0.partitions();
            if let Some(partitions) = &partitions {
                if partitions.is_empty() {
                    return Err("NULL or non-empty topic partition list must be passed".into());
                }
                all_different(partitions.iter(), DUPLICATE_PARTITIONS)?;
            }
            Ok((request.0.group(), partitions))
        }),
        |admin, options, asked: (String, Option<Vec<TopicPartition>>)| {
            let (group, partitions) = asked;
            let answers = admin
                .list_group_offsets(&group, partitions.as_deref(), options.stable(), options.timeouts())
                .await?;
            Ok((group, answers))
        },
        |(group, answers): (String, _)| groups::committed(&group, answers);
    rd_kafka_AlterConsumerGroupOffsets(rd_kafka_AlterConsumerGroupOffsets_t, RD_KAFKA_EVENT_ALTERCONSUMERGROUPOFFSETS_RESULT):
        |requests| one(requests, "AlterConsumerGroupOffsets").and_then(|request| {
            let offsets = request.0.offsets()?;
            if offsets.is_empty() {
                return Err("Non-empty topic partition list must be present".into());
            }
            all_different(offsets.iter().map(|(at, _)| at), DUPLICATE_PARTITIONS)?;
            Ok((request.0.group(), offsets))
        }),
        |admin, options, asked: (String, Vec<(TopicPartition, OffsetAndMetadata)>)| {
            let (group, offsets) = asked;
            let answers = admin.alter_group_offsets_with(&group, &offsets, options.timeouts()).await?;
            Ok((group, answers, offsets))
        },
        |(group, answers, offsets): (String, _, Vec<_>)| groups::altered(&group, answers, &offsets);
    rd_kafka_DeleteConsumerGroupOffsets(rd_kafka_DeleteConsumerGroupOffsets_t, RD_KAFKA_EVENT_DELETECONSUMERGROUPOFFSETS_RESULT):
        // As in the original, the broker gets an empty list, and partitions that are repeated.
        |requests| one(requests, "DeleteConsumerGroupOffsets")
            .map(|request| (request.0.group(), request.0.partitions().unwrap_or_default())),
        |admin, options, asked: (String, Vec<TopicPartition>)| {
            let (group, partitions) = asked;
            let answers = admin.delete_group_offsets(&group, &partitions, options.timeouts()).await?;
            Ok((group, answers))
        },
        |(group, answers): (String, _)| groups::altered(&group, answers, &[]);
    rd_kafka_AlterUserScramCredentials(rd_kafka_UserScramCredentialAlteration_t, RD_KAFKA_EVENT_ALTERUSERSCRAMCREDENTIALS_RESULT):
        |changes| {
            let changes = changes.iter().enumerate().map(|(index, change)| change.change(index));
            let changes = changes.collect::<Result<Vec<_>, String>>()?;
            if changes.is_empty() {
                return Err("At least one alteration is required".to_owned());
            }
            Ok(changes)
        },
        |admin, options, changes: Vec<ScramChange>| admin.alter_scram_credentials(&changes, options.timeouts()).await,
        scram::altered;
    rd_kafka_CreateAcls(rd_kafka_AclBinding_t, RD_KAFKA_EVENT_CREATEACLS_RESULT):
        |acls| {
            let acls = acls.iter().map(|acl| acl.acl().map_err(str::to_owned));
            acls.collect::<Result<Vec<_>, String>>()
        },
        |admin, options, acls: Vec<Acl>| {
            refuse_none(&admin, acls.len(), options.timeouts(), "No acls to create").await?;
            admin.create_acls(&acls, options.timeouts()).await
        },
        acls::created;
    rd_kafka_DeleteAcls(rd_kafka_AclBindingFilter_t, RD_KAFKA_EVENT_DELETEACLS_RESULT):
        |filters| {
            let filters = filters.iter().map(|filter| filter.filter());
            Ok(filters.collect::<Vec<_>>())
        },
        |admin, options, filters: Vec<AclFilter>| {
            refuse_none(&admin, filters.len(), options.timeouts(), "No acl binding filters specified").await?;
            admin.delete_acls(&filters, options.timeouts()).await
        },
        acls::deleted;
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_DescribeTopics(
    rk: *mut rd_kafka_t,
    topics: *const rd_kafka_TopicCollection_t,
    options: *const rd_kafka_AdminOptions_t,
    rkqu: *mut rd_kafka_queue_t,
) {
    let check = || {
        // SAFETY: `topics` is NULL or a `rd_kafka_TopicCollection_t` of this library, not yet destroyed (rdkafka.h,
        // `rd_kafka_DescribeTopics`).
        let names = unsafe { topics.as_ref() }.map_or_else(Vec::new, |topics| topics.0.clone());
        all_different(names.iter(), "Duplicate topics not allowed")?;
        match names.iter().position(String::is_empty) {
            Some(index) => Err(format!("Empty topic name at index {index} isn't allowed")),
            None => Ok(names),
        }
    };
    let ask = |admin: Admin, options: rd_kafka_AdminOptions_t, names: Vec<String>| async move {
        admin.describe_topics_with(&refs(&names), options.describe()).await
    };
    let kind = RD_KAFKA_EVENT_DESCRIBETOPICS_RESULT;
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `topics` is NULL or a
    // `rd_kafka_TopicCollection_t` of this library, not yet destroyed; `options` is NULL or a
    // `rd_kafka_AdminOptions_t` of this library, not yet destroyed; `rkqu` is NULL or a queue of this library, not
    // yet destroyed (rdkafka.h, `rd_kafka_DescribeTopics`).
    unsafe { request(Target { function: FUNCTION, rk, rkqu }, options, kind, check, ask, layout::topics) };
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_DescribeCluster(
    rk: *mut rd_kafka_t,
    options: *const rd_kafka_AdminOptions_t,
    rkqu: *mut rd_kafka_queue_t,
) {
    let ask = |admin: Admin, options: rd_kafka_AdminOptions_t, ()| async move {
        admin.describe_cluster_with(options.describe()).await
    };
    let kind = RD_KAFKA_EVENT_DESCRIBECLUSTER_RESULT;
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `options` is NULL or a
    // `rd_kafka_AdminOptions_t` of this library, not yet destroyed; `rkqu` is NULL or a queue of this library, not
    // yet destroyed (rdkafka.h, `rd_kafka_DescribeCluster`).
    unsafe {
        request(
            Target { function: FUNCTION, rk, rkqu },
            options,
            kind,
            || Ok(()),
            ask,
            |described| layout::cluster(&described),
        );
    };
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_ListConsumerGroups(
    rk: *mut rd_kafka_t,
    options: *const rd_kafka_AdminOptions_t,
    rkqu: *mut rd_kafka_queue_t,
) {
    let ask = |admin: Admin, options: rd_kafka_AdminOptions_t, ()| async move {
        match admin.list_consumer_groups(options.filter(), options.timeouts()).await {
            // Programs expect it among the errors of the brokers.
            Err(error) if code(&error) == RD_KAFKA_RESP_ERR__TIMED_OUT => Ok(Err(error)),
            other => other.map(Ok),
        }
    };
    let kind = RD_KAFKA_EVENT_LISTCONSUMERGROUPS_RESULT;
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `options` is NULL or a
    // `rd_kafka_AdminOptions_t` of this library, not yet destroyed; `rkqu` is NULL or a queue of this library, not
    // yet destroyed (rdkafka.h, `rd_kafka_ListConsumerGroups`).
    unsafe {
        request(Target { function: FUNCTION, rk, rkqu }, options, kind, || Ok(()), ask, groups::listed);
    };
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_DescribeConsumerGroups(
    rk: *mut rd_kafka_t,
    groups: *mut *const c_char,
    groups_cnt: usize,
    options: *const rd_kafka_AdminOptions_t,
    rkqu: *mut rd_kafka_queue_t,
) {
    let check = || {
        // SAFETY: `groups` points to `groups_cnt` C strings (rdkafka.h, `rd_kafka_DescribeConsumerGroups`).
        let groups = unsafe { texts(groups, groups_cnt) };
        check_groups(groups, "No groups to describe")
    };
    let ask = |admin: Admin, options: rd_kafka_AdminOptions_t, groups: Vec<String>| async move {
        admin.describe_groups_with(&refs(&groups), options.describe()).await
    };
    let kind = RD_KAFKA_EVENT_DESCRIBECONSUMERGROUPS_RESULT;
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `options` is NULL or a
    // `rd_kafka_AdminOptions_t` of this library, not yet destroyed; `rkqu` is NULL or a queue of this library, not
    // yet destroyed (rdkafka.h, `rd_kafka_DescribeConsumerGroups`).
    unsafe {
        request(
            Target { function: FUNCTION, rk, rkqu },
            options,
            kind,
            check,
            ask,
            group_descriptions::described,
        );
    };
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_DescribeUserScramCredentials(
    rk: *mut rd_kafka_t,
    users: *mut *const c_char,
    user_cnt: usize,
    options: *const rd_kafka_AdminOptions_t,
    rkqu: *mut rd_kafka_queue_t,
) {
    let check = || {
        // SAFETY: `users` points to `user_cnt` C strings (rdkafka.h, `rd_kafka_DescribeUserScramCredentials`).
        let users = unsafe { texts(users, user_cnt) };
        if let Some(index) = users.iter().position(String::is_empty) {
            return Err(format!("Empty users aren't allowed, index {index}"));
        }
        // An empty list selects all users.
        all_different(users.iter(), "Duplicate users aren't allowed in the same request").map(|()| users)
    };
    let ask = |admin: Admin, options: rd_kafka_AdminOptions_t, users: Vec<String>| async move {
        let users = refs(&users);
        let users = (!users.is_empty()).then_some(users.as_slice());
        admin.describe_scram_credentials(users, options.timeouts()).await
    };
    let kind = RD_KAFKA_EVENT_DESCRIBEUSERSCRAMCREDENTIALS_RESULT;
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `options` is NULL or a
    // `rd_kafka_AdminOptions_t` of this library, not yet destroyed; `rkqu` is NULL or a queue of this library, not
    // yet destroyed (rdkafka.h, `rd_kafka_DescribeUserScramCredentials`).
    unsafe { request(Target { function: FUNCTION, rk, rkqu }, options, kind, check, ask, scram::described) };
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_DescribeAcls(
    rk: *mut rd_kafka_t,
    acl_filter: *mut rd_kafka_AclBindingFilter_t,
    options: *const rd_kafka_AdminOptions_t,
    rkqu: *mut rd_kafka_queue_t,
) {
    let check = || {
        // SAFETY: `acl_filter` is NULL or a `rd_kafka_AclBindingFilter_t` of this library, not yet destroyed
        // (rdkafka.h, `rd_kafka_DescribeAcls`).
        let filter = unsafe { acl_filter.as_ref() };
        filter.map(rd_kafka_AclBinding_t::filter).ok_or_else(|| "there is no filter".into())
    };
    let ask = |admin: Admin, options: rd_kafka_AdminOptions_t, filter| async move {
        admin.describe_acls(&filter, options.timeouts()).await
    };
    let kind = RD_KAFKA_EVENT_DESCRIBEACLS_RESULT;
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `options` is NULL or a
    // `rd_kafka_AdminOptions_t` of this library, not yet destroyed; `rkqu` is NULL or a queue of this library, not
    // yet destroyed (rdkafka.h, `rd_kafka_DescribeAcls`).
    unsafe {
        request(Target { function: FUNCTION, rk, rkqu }, options, kind, check, ask, |acls: Vec<_>| {
            acls::described(&acls)
        });
    };
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_ListOffsets(
    rk: *mut rd_kafka_t,
    topic_partitions: *mut rd_kafka_topic_partition_list_t,
    options: *const rd_kafka_AdminOptions_t,
    rkqu: *mut rd_kafka_queue_t,
) {
    let check = || {
        // SAFETY: `topic_partitions` is NULL or a list of this library, not yet destroyed (rdkafka.h,
        // `rd_kafka_ListOffsets`).
        let list = unsafe { List::copy_of(topic_partitions) };
        // No partitions have no offsets.
        offsets::wanted(&list)
    };
    let ask = |admin: Admin, options: rd_kafka_AdminOptions_t, wanted: Vec<_>| async move {
        admin.list_offsets_with(&wanted, options.isolation(), options.timeouts()).await
    };
    let kind = RD_KAFKA_EVENT_LISTOFFSETS_RESULT;
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `options` is NULL or a
    // `rd_kafka_AdminOptions_t` of this library, not yet destroyed; `rkqu` is NULL or a queue of this library, not
    // yet destroyed (rdkafka.h, `rd_kafka_ListOffsets`).
    unsafe { request(Target { function: FUNCTION, rk, rkqu }, options, kind, check, ask, offsets::found) };
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_ElectLeaders(
    rk: *mut rd_kafka_t,
    elect_leaders: *mut rd_kafka_ElectLeaders_t,
    options: *const rd_kafka_AdminOptions_t,
    rkqu: *mut rd_kafka_queue_t,
) {
    let check = || {
        // SAFETY: `elect_leaders` is NULL or a `rd_kafka_ElectLeaders_t` of this library, not yet destroyed
        // (rdkafka.h, `rd_kafka_ElectLeaders`).
        let asked = unsafe { elect_leaders.as_ref() }.ok_or("there is nothing to elect")?.election()?;
        if let (_, Some(partitions)) = &asked {
            all_different(partitions.iter(), "Duplicate partitions specified")?;
        }
        Ok(asked)
    };
    let ask = |admin: Admin,
               options: rd_kafka_AdminOptions_t,
               (election, partitions): (_, Option<Vec<_>>)| async move {
        admin.elect_leaders(election, partitions.as_deref(), options.timeouts()).await
    };
    let kind = RD_KAFKA_EVENT_ELECTLEADERS_RESULT;
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `options` is NULL or a
    // `rd_kafka_AdminOptions_t` of this library, not yet destroyed; `rkqu` is NULL or a queue of this library, not
    // yet destroyed (rdkafka.h, `rd_kafka_ElectLeaders`).
    unsafe { request(Target { function: FUNCTION, rk, rkqu }, options, kind, check, ask, offsets::elected) };
}
