//! `rd_kafka_consumer_group_metadata_t`: a consumer's membership, for the transactions of a producer.

use std::ffi::{CString, c_char, c_void};
use std::ptr::{null, null_mut, slice_from_raw_parts};

use ottla_client::GroupMetadata;

use crate::client::handle::Handle;
use crate::errors::error_object::rd_kafka_error_t;
use crate::ffi::c_strings::{c_string, text};
use crate::ffi::panic::on_panic;
use crate::ffi::*;

/// A consumer's membership in its group.
pub struct rd_kafka_consumer_group_metadata_t {
    pub(crate) metadata: GroupMetadata,
    group_id: CString,
    member_id: CString,
    instance_id: Option<CString>,
}

impl rd_kafka_consumer_group_metadata_t {
    fn give(metadata: GroupMetadata) -> *mut Self {
        Box::into_raw(Box::new(Self {
            group_id: c_string(&metadata.group_id),
            member_id: c_string(&metadata.member_id),
            instance_id: metadata.instance_id.as_deref().map(c_string),
            metadata,
        }))
    }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consumer_group_metadata(
    rk: *mut rd_kafka_t,
) -> *mut rd_kafka_consumer_group_metadata_t {
    let handle = Handle::of(rk, FUNCTION);
    let consuming = handle.as_deref().and_then(Handle::consumer_state);
    let metadata = consuming.and_then(|consuming| consuming.group_metadata().ok());
    metadata.map_or(null_mut(), rd_kafka_consumer_group_metadata_t::give)
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consumer_group_metadata_new(
    group_id: *const c_char,
) -> *mut rd_kafka_consumer_group_metadata_t {
    // SAFETY: `group_id` is NULL or a C string (rdkafka.h, `rd_kafka_consumer_group_metadata_new`).
    let group = unsafe { text(group_id) };
    group.map_or(null_mut(), |group| {
        rd_kafka_consumer_group_metadata_t::give(GroupMetadata::new(group.into_owned()))
    })
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consumer_group_metadata_new_with_genid(
    group_id: *const c_char,
    generation_id: i32,
    member_id: *const c_char,
    group_instance_id: *const c_char,
) -> *mut rd_kafka_consumer_group_metadata_t {
    // SAFETY: `group_id`, `member_id` and `group_instance_id` are each NULL or a C string (rdkafka.h,
    // `rd_kafka_consumer_group_metadata_new_with_genid`).
    let (group, member, instance) = unsafe { (text(group_id), text(member_id), text(group_instance_id)) };
    let Some(group) = group else { return null_mut() };
    let mut metadata = GroupMetadata::new(group.into_owned());
    metadata.generation = generation_id;
    metadata.member_id = member.unwrap_or_default().into_owned();
    metadata.instance_id = instance.map(std::borrow::Cow::into_owned);
    rd_kafka_consumer_group_metadata_t::give(metadata)
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consumer_group_metadata_destroy(
    group: *mut rd_kafka_consumer_group_metadata_t,
) {
    if !group.is_null() {
        // SAFETY: from `give`, given back once (rdkafka.h, `rd_kafka_consumer_group_metadata_destroy`).
        drop(unsafe { Box::from_raw(group) });
    }
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consumer_group_metadata_group_id(
    group: *const rd_kafka_consumer_group_metadata_t,
) -> *const c_char {
    // SAFETY: `group` is NULL or group metadata of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_consumer_group_metadata_group_id`).
    unsafe { group.as_ref() }.map_or(null(), |group| group.group_id.as_ptr())
}

#[on_panic(-1)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consumer_group_metadata_generation_id(
    group: *const rd_kafka_consumer_group_metadata_t,
) -> i32 {
    // SAFETY: `group` is NULL or group metadata of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_consumer_group_metadata_generation_id`).
    unsafe { group.as_ref() }.map_or(-1, |group| group.metadata.generation)
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consumer_group_metadata_member_id(
    group: *const rd_kafka_consumer_group_metadata_t,
) -> *const c_char {
    // SAFETY: `group` is NULL or group metadata of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_consumer_group_metadata_member_id`).
    unsafe { group.as_ref() }.map_or(null(), |group| group.member_id.as_ptr())
}

#[on_panic(null())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consumer_group_metadata_group_instance_id(
    group: *const rd_kafka_consumer_group_metadata_t,
) -> *const c_char {
    // SAFETY: `group` is NULL or group metadata of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_consumer_group_metadata_group_instance_id`).
    let group = unsafe { group.as_ref() };
    group.and_then(|group| group.instance_id.as_ref()).map_or(null(), |id| id.as_ptr())
}

/// The first bytes of serialized metadata, as librdkafka 2.16 has them. The generation, the group and the member follow, then 1, or 0
/// and the instance. Each string has a NUL at its end.
const MAGIC: &[u8] = b"CGMDv2:";

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consumer_group_metadata_write(
    cgmd: *const rd_kafka_consumer_group_metadata_t,
    bufferp: *mut *mut c_void,
    sizep: *mut usize,
) -> *mut rd_kafka_error_t {
    // SAFETY: `cgmd` is NULL or group metadata of this library, not yet destroyed; `bufferp` and `sizep` are each
    // NULL or writable (rdkafka.h, `rd_kafka_consumer_group_metadata_write`).
    let (Some(group), Some(buffer), Some(size)) =
        (unsafe { (cgmd.as_ref(), bufferp.as_mut(), sizep.as_mut()) })
    else {
        return rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__INVALID_ARG, "NULL argument").into_raw();
    };
    let mut bytes = MAGIC.to_vec();
    bytes.extend(group.metadata.generation.to_ne_bytes());
    bytes.extend(group.group_id.as_bytes_with_nul());
    bytes.extend(group.member_id.as_bytes_with_nul());
    bytes.push(u8::from(group.instance_id.is_none()));
    bytes.extend(group.instance_id.as_deref().map_or(&[][..], std::ffi::CStr::to_bytes_with_nul));
    // SAFETY: C frees it; as long as it says.
    unsafe {
        let copy = libc::malloc(bytes.len());
        if copy.is_null() {
            return rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE, "out of memory").into_raw();
        }
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy.cast(), bytes.len());
        *buffer = copy;
    }
    *size = bytes.len();
    null_mut()
}

#[on_panic(crate::errors::error_object::panicked())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_consumer_group_metadata_read(
    cgmdp: *mut *mut rd_kafka_consumer_group_metadata_t,
    buffer: *const c_void,
    size: usize,
) -> *mut rd_kafka_error_t {
    // SAFETY: `cgmdp` is NULL or writable; `buffer` is NULL or points to `size` bytes (rdkafka.h,
    // `rd_kafka_consumer_group_metadata_read`).
    let (Some(place), false) = (unsafe { cgmdp.as_mut() }, buffer.is_null()) else {
        return rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__INVALID_ARG, "NULL argument").into_raw();
    };
    // SAFETY: `buffer` is NULL or points to `size` bytes (rdkafka.h, `rd_kafka_consumer_group_metadata_read`).
    let bytes = unsafe { &*slice_from_raw_parts(buffer.cast::<u8>(), size) };
    if let Some(metadata) = read(bytes) {
        *place = rd_kafka_consumer_group_metadata_t::give(metadata);
        null_mut()
    } else {
        let reason = "Input buffer is not a serialized consumer group metadata object";
        rd_kafka_error_t::new(RD_KAFKA_RESP_ERR__BAD_MSG, reason).into_raw()
    }
}

fn read(bytes: &[u8]) -> Option<GroupMetadata> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (generation, mut rest) = rest.split_at_checked(4)?;
    let mut next = || {
        let end = rest.iter().position(|byte| *byte == 0)?;
        let (text, after) = rest.split_at(end);
        rest = &after[1..];
        String::from_utf8(text.to_vec()).ok()
    };
    let (group_id, member_id) = (next()?, next()?);
    let (is_null, rest) = rest.split_first()?;
    let instance_id = match (*is_null, rest) {
        (0, [id @ .., 0]) if !id.contains(&0) => Some(String::from_utf8_lossy(id).into_owned()),
        (1.., []) => None,
        _ => return None,
    };
    let mut metadata = GroupMetadata::new(group_id);
    metadata.generation = i32::from_ne_bytes(generation.try_into().ok()?);
    metadata.member_id = member_id;
    metadata.instance_id = instance_id;
    Some(metadata)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// They were of another version, with another meaning of the byte before the instance: librdkafka refused them.
    #[test]
    fn the_bytes_are_those_of_librdkafka() {
        for (instance, end) in [(None, &b"\x01"[..]), (Some("i"), b"\0i\0")] {
            let mut metadata = GroupMetadata::new("billing");
            (metadata.generation, metadata.member_id) = (7, "m-1".into());
            metadata.instance_id = instance.map(str::to_owned);
            let group = rd_kafka_consumer_group_metadata_t::give(metadata);
            let (mut buffer, mut size) = (null_mut(), 0);
            let expected = [&b"CGMDv2:"[..], &7_i32.to_ne_bytes()[..], b"billing\0m-1\0", end].concat();
            // SAFETY: valid pointers all along.
            unsafe {
                let error = rd_kafka_consumer_group_metadata_write(group, &raw mut buffer, &raw mut size);
                assert!(error.is_null());
                assert_eq!(&*slice_from_raw_parts(buffer.cast::<u8>(), size), expected);
                libc::free(buffer);
                rd_kafka_consumer_group_metadata_destroy(group);
            }
            let read = read(&expected).expect("what was written is read");
            assert_eq!((read.member_id.as_str(), read.instance_id.as_deref()), ("m-1", instance));
        }
    }

    #[test]
    fn what_was_written_is_read_and_what_is_cut_off_is_refused() {
        let mut metadata = GroupMetadata::new("billing");
        (metadata.generation, metadata.member_id) = (7, "m-1".into());
        metadata.instance_id = Some("i".into());
        let group = rd_kafka_consumer_group_metadata_t::give(metadata);
        let (mut buffer, mut size, mut copy) = (null_mut(), 0, null_mut());
        // SAFETY: valid pointers all along.
        unsafe {
            assert!(rd_kafka_consumer_group_metadata_write(group, &raw mut buffer, &raw mut size).is_null());
            assert!(rd_kafka_consumer_group_metadata_read(&raw mut copy, buffer, size).is_null());
            assert_eq!(rd_kafka_consumer_group_metadata_generation_id(copy), 7);
            assert_eq!((*copy).metadata.instance_id.as_deref(), Some("i"));
            for cut in 0..size {
                let error = rd_kafka_consumer_group_metadata_read(&raw mut copy, buffer, cut);
                assert!(!error.is_null(), "{cut} of {size} bytes were taken");
                drop(Box::from_raw(error));
            }
            rd_kafka_consumer_group_metadata_destroy(group);
            rd_kafka_consumer_group_metadata_destroy(copy);
            libc::free(buffer);
        }
    }
}
