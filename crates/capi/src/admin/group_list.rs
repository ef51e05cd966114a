//! `rd_kafka_list_groups`: groups with their members in one call that waits, as it was before there were events.

use std::ffi::{CString, c_char, c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use ottla_client::{Admin, Each, Error, GroupDescription, GroupFilter, Timeouts};

use super::code;
use super::group_descriptions::slashed;
use crate::ffi::*;
use crate::handle::Handle;
use crate::panic::guard;
use crate::queue::timeout_of;
use crate::text::{c_string, text};

/// Longer than anybody waits.
const FOR_EVER: Duration = Duration::from_secs(3600);

/// What `rd_kafka_group_list_destroy` takes back: the struct that C reads, and all that it points to.
#[repr(C)]
struct Told {
    list: rd_kafka_group_list,
    _groups: Box<[rd_kafka_group_info]>,
    _members: Vec<Box<[rd_kafka_group_member_info]>>,
    _texts: Vec<CString>,
    _bytes: Vec<bytes::Bytes>,
}

impl Told {
    fn new(groups: Each<String, GroupDescription>) -> Self {
        let (mut members, mut texts, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        let mut text = |text: CString| {
            let raw = text.as_ptr().cast_mut();
            texts.push(text);
            raw
        };
        let mut bytes = |bytes: &bytes::Bytes| {
            let raw: *mut c_void = bytes.as_ptr().cast_mut().cast();
            kept.push(bytes.clone());
            (raw, bytes.len() as c_int)
        };
        let mut infos = Vec::new();
        for (name, answer) in groups {
            let err = answer.as_ref().err().map_or(RD_KAFKA_RESP_ERR_NO_ERROR, code);
            let group = answer.ok();
            let mut of_group: Box<[_]> = group
                .iter()
                .flat_map(|group| &group.members)
                .map(|member| {
                    let (member_metadata, member_metadata_size) = bytes(&member.metadata);
                    let (member_assignment, member_assignment_size) = bytes(&member.assignment_bytes);
                    rd_kafka_group_member_info {
                        member_id: text(c_string(&member.member)),
                        client_id: text(c_string(&member.client_id)),
                        client_host: text(slashed(&member.host)),
                        member_metadata,
                        member_metadata_size,
                        member_assignment,
                        member_assignment_size,
                    }
                })
                .collect();
            let node = group.as_ref().map(|group| &group.coordinator_node);
            let mut of =
                |part: fn(&GroupDescription) -> &str| text(c_string(group.as_ref().map_or("", part)));
            infos.push(rd_kafka_group_info {
                state: of(|group| &group.state),
                protocol_type: of(|group| &group.protocol_type),
                protocol: of(|group| &group.protocol),
                broker: rd_kafka_metadata_broker_t {
                    id: node.map_or(-1, |node| node.id),
                    host: text(c_string(node.map_or("", |node| &node.host))),
                    port: node.map_or(0, |node| node.port.into()),
                },
                group: text(c_string(&name)),
                err,
                members: of_group.as_mut_ptr(),
                member_cnt: of_group.len() as c_int,
            });
            members.push(of_group);
        }
        let mut groups = infos.into_boxed_slice();
        let list = rd_kafka_group_list { groups: groups.as_mut_ptr(), group_cnt: groups.len() as c_int };
        Self { list, _groups: groups, _members: members, _texts: texts, _bytes: kept }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_list_groups(
    rk: *mut rd_kafka_t,
    group: *const c_char,
    grplistp: *mut *const rd_kafka_group_list,
    timeout_ms: c_int,
) -> rd_kafka_resp_err_t {
    guard(RD_KAFKA_RESP_ERR__FAIL, || {
        // SAFETY: by contract.
        let (handle, group, place) = unsafe { (Handle::shared(rk), text(group), grplistp.as_mut()) };
        let (Some(handle), Some(place)) = (handle, place) else { return RD_KAFKA_RESP_ERR__INVALID_ARG };
        *place = null_mut();
        match ask(&handle, group.map(std::borrow::Cow::into_owned), timeout_ms) {
            Ok((groups, missing)) => {
                if let (Some(error), true) = (&missing, groups.is_empty()) {
                    return code(error);
                }
                *place = Box::into_raw(Box::new(Told::new(groups))).cast();
                missing.map_or(RD_KAFKA_RESP_ERR_NO_ERROR, |_| RD_KAFKA_RESP_ERR__PARTIAL)
            }
            Err(error) => code(&error),
        }
    })
}

/// Groups with their members, and why some may be missing.
type Found = (Each<String, GroupDescription>, Option<Error>);

fn ask(handle: &Arc<Handle>, only: Option<String>, timeout_ms: c_int) -> Result<Found, Error> {
    let admin = Admin::of(handle.client().ok_or(Error::Closed)?);
    let timeouts = Timeouts::within(timeout_of(timeout_ms).unwrap_or(FOR_EVER));
    let (answer, answered) = mpsc::channel();
    handle.admin.start(async move {
        let asking = async {
            let listed = admin.list_groups_with(GroupFilter::default(), timeouts).await?;
            let names = listed.groups.iter().map(|group| group.group.as_str());
            let names: Vec<&str> =
                names.filter(|name| only.as_ref().is_none_or(|only| only == name)).collect();
            let described = admin.describe_groups_with(
                &names,
                ottla_client::Describe { timeouts, authorized_operations: false },
            );
            Ok((described.await?, listed.errors.into_iter().next().map(|(_, error)| error)))
        };
        let _ = answer.send(asking.await);
    });
    // A client that goes takes the request with it.
    answered.recv().unwrap_or(Err(Error::Closed))
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_group_list_destroy(grplist: *const rd_kafka_group_list) {
    if !grplist.is_null() {
        let told: *mut Told = grplist.cast_mut().cast();
        // SAFETY: the first field of what `rd_kafka_list_groups` leaked, given back once, by contract.
        guard((), || drop(unsafe { Box::from_raw(told) }));
    }
}
