//! `rd_kafka_list_groups`: groups with their members, as C reads them.

use std::ffi::{CString, c_char, c_int};
use std::ptr::null_mut;
use std::time::{Duration, Instant};

use bytes::Bytes;
use ottla_client::{Client, DescribeOptions, Error, GroupDescription, GroupFilter, Timeouts};

use crate::client::handle::Handle;
use crate::consume::offsets::wait_on;
use crate::errors::error_mapping::of as code_of;
use crate::ffi::c_strings::{c_string, slashed, text};
use crate::ffi::panic::on_panic;
use crate::ffi::*;
use crate::queue::op_queue::timeout_of;

/// The memory that `rd_kafka_group_list_destroy` frees: the struct that C reads, and all that it points to.
#[repr(C)]
struct GroupListBlock {
    list: rd_kafka_group_list,
    _groups: Box<[rd_kafka_group_info]>,
    _members: Vec<Box<[rd_kafka_group_member_info]>>,
    _bytes: Vec<Bytes>,
    _texts: Vec<CString>,
}

/// A group, or the error of its description.
type Found = (String, Result<GroupDescription, Error>);

impl GroupListBlock {
    #[expect(clippy::unnecessary_box_returns, reason = "C gets it")]
    fn new(found: Vec<Found>) -> Box<Self> {
        let (mut texts, mut bytes, mut members) = (Vec::new(), Vec::new(), Vec::new());
        let mut text = |text: &str| {
            let text = c_string(text);
            let raw = text.as_ptr().cast_mut();
            texts.push(text);
            raw
        };
        let mut part = |part: Bytes| {
            let raw = (part.as_ptr().cast_mut().cast(), part.len() as c_int);
            bytes.push(part);
            raw
        };
        let mut groups = Vec::with_capacity(found.len());
        for (name, described) in found {
            let mut group = rd_kafka_group_info {
                broker: rd_kafka_metadata_broker_t { id: -1, host: text(""), port: 0 },
                group: text(&name),
                err: RD_KAFKA_RESP_ERR_NO_ERROR,
                state: text(""),
                protocol_type: text(""),
                protocol: text(""),
                members: null_mut(),
                member_cnt: 0,
            };
            match described {
                Err(error) => group.err = code_of(&error),
                Ok(described) => {
                    let node = &described.coordinator_node;
                    group.broker = rd_kafka_metadata_broker_t {
                        id: node.id,
                        host: text(&node.host),
                        port: node.port.into(),
                    };
                    group.state = text(&described.state);
                    group.protocol_type = text(&described.protocol_type);
                    group.protocol = text(&described.protocol);
                    let mut own: Box<[_]> = described
                        .members
                        .into_iter()
                        .map(|member| {
                            let (member_metadata, member_metadata_size) = part(member.metadata);
                            let (member_assignment, member_assignment_size) = part(member.assignment_bytes);
                            rd_kafka_group_member_info {
                                member_id: text(&member.member),
                                client_id: text(&member.client_id),
                                client_host: text(&slashed(&member.host)),
                                member_metadata,
                                member_metadata_size,
                                member_assignment,
                                member_assignment_size,
                            }
                        })
                        .collect();
                    (group.members, group.member_cnt) = (own.as_mut_ptr(), own.len() as c_int);
                    members.push(own);
                }
            }
            groups.push(group);
        }
        let mut groups = groups.into_boxed_slice();
        let list = rd_kafka_group_list { groups: groups.as_mut_ptr(), group_cnt: groups.len() as c_int };
        Box::new(Self { list, _groups: groups, _members: members, _bytes: bytes, _texts: texts })
    }
}

/// The groups that were asked for, and whether brokers are missing that may have more.
fn ask(client: &Client, group: Option<String>, timeout: Duration) -> Result<(Vec<Found>, bool), Error> {
    let admin = client.admin();
    wait_on(client, timeout, async move {
        let timeouts = Timeouts::within(timeout);
        let listed = admin.list_groups_with(GroupFilter::default(), timeouts).await?;
        let partial = !listed.errors.is_empty();
        let mut names: Vec<_> = listed.groups.into_iter().map(|group| group.group).collect();
        // One that no broker has is not among them, and no error.
        names.retain(|name| group.as_ref().is_none_or(|wanted| wanted == name));
        let asked: Vec<&str> = names.iter().map(String::as_str).collect();
        let what = DescribeOptions { timeouts, ..DescribeOptions::default() };
        Ok((admin.describe_groups_with(&asked, what).await?, partial))
    })
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_list_groups(
    rk: *mut rd_kafka_t,
    group: *const c_char,
    grplistp: *mut *const rd_kafka_group_list,
    timeout_ms: c_int,
) -> rd_kafka_resp_err_t {
    // SAFETY: `rk` is NULL or a handle from `rd_kafka_new`, not yet destroyed; `group` is NULL or a C string;
    // `grplistp` is NULL or writable (rdkafka.h, `rd_kafka_list_groups`).
    let (handle, group, place) = unsafe { (Handle::of(rk, FUNCTION), text(group), grplistp.as_mut()) };
    let (Some(client), Some(place)) = (handle.as_deref().and_then(Handle::client), place) else {
        return RD_KAFKA_RESP_ERR__INVALID_ARG;
    };
    let timeout = timeout_of(timeout_ms).unwrap_or(Duration::from_secs(3600));
    let began = Instant::now();
    match ask(client, group.map(std::borrow::Cow::into_owned), timeout) {
        Ok((found, partial)) => {
            *place = Box::into_raw(GroupListBlock::new(found)).cast();
            if partial { RD_KAFKA_RESP_ERR__PARTIAL } else { RD_KAFKA_RESP_ERR_NO_ERROR }
        }
        Err(Error::TimedOut { .. }) => RD_KAFKA_RESP_ERR__TIMED_OUT,
        // The last attempt ended so shortly before the deadline that there was no time for another one. As in the
        // original, a call without a broker lasts until its timeout.
        Err(Error::Unreachable { .. }) => {
            std::thread::sleep(timeout.saturating_sub(began.elapsed()));
            RD_KAFKA_RESP_ERR__TIMED_OUT
        }
        Err(error) => code_of(&error),
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_group_list_destroy(grplist: *const rd_kafka_group_list) {
    if !grplist.is_null() {
        let told: *mut GroupListBlock = grplist.cast_mut().cast();
        // SAFETY: the first field of what `rd_kafka_list_groups` leaked, given back once (rdkafka.h,
        // `rd_kafka_group_list_destroy`).
        drop(unsafe { Box::from_raw(told) });
    }
}
