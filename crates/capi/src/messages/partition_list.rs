//! `rd_kafka_topic_partition_list_t`: an array that C reads, so it and all that it points to live in C's memory.

use std::cmp::Ordering;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr::null_mut;

use ottla_client::Uuid;

use crate::ffi::panic::on_panic;
use crate::ffi::*;

/// Private fields of an element.
#[derive(Clone)]
pub struct Private {
    /// Of the offset; -1 is unknown.
    pub leader_epoch: i32,
    /// The leader epoch of the position before the offset; -1 is unknown.
    pub current_leader_epoch: i32,
    pub topic_id: Uuid,
}

impl Default for Private {
    fn default() -> Self {
        Self { leader_epoch: -1, current_leader_epoch: -1, topic_id: Uuid::default() }
    }
}

impl rd_kafka_topic_partition_t {
    /// Its private fields, allocated at the first use.
    pub fn private_mut(&mut self) -> &mut Private {
        if self._private.is_null() {
            self._private = Box::into_raw(Box::<Private>::default()).cast();
        }
        // SAFETY: ours alone, see above.
        unsafe { &mut *self._private.cast::<Private>() }
    }

    pub fn private(&self) -> Option<&Private> {
        // SAFETY: NULL or what `private_mut` made.
        unsafe { self._private.cast::<Private>().as_ref() }
    }

    pub fn leader_epoch(&self) -> i32 {
        self.private().map_or(-1, |private| private.leader_epoch)
    }

    /// Sets the leader epoch of the offset; `None` is unknown.
    pub fn set_leader_epoch(&mut self, epoch: Option<i32>) {
        let epoch = epoch.unwrap_or(-1);
        if epoch != -1 || !self._private.is_null() {
            self.private_mut().leader_epoch = epoch;
        }
    }

    /// The topic's name; empty for NULL.
    pub fn topic(&self) -> &CStr {
        if self.topic.is_null() {
            return c"";
        }
        // SAFETY: a C string of the list's (required by the C functions that call this).
        unsafe { CStr::from_ptr(self.topic) }
    }

    pub fn metadata(&self) -> &[u8] {
        if self.metadata.is_null() {
            return &[];
        }
        // SAFETY: `metadata` points to `metadata_size` bytes (rdkafka.h, `rd_kafka_topic_partition_t`).
        unsafe { std::slice::from_raw_parts(self.metadata.cast(), self.metadata_size) }
    }

    /// Takes over what the element of another list says: offset, metadata, opaque, error, epochs.
    pub fn update_from(&mut self, other: &Self) {
        self.offset = other.offset;
        self.err = other.err;
        self.opaque = other.opaque;
        self.set_metadata(other.metadata());
        if let Some(private) = other.private() {
            *self.private_mut() = private.clone();
        }
    }

    pub fn set_metadata(&mut self, bytes: &[u8]) {
        // SAFETY: C's memory, and the copy has room.
        unsafe {
            libc::free(self.metadata);
            (self.metadata, self.metadata_size) = (null_mut(), 0);
            if !bytes.is_empty() {
                let copy = libc::malloc(bytes.len());
                if !copy.is_null() {
                    std::ptr::copy_nonoverlapping(bytes.as_ptr(), copy.cast(), bytes.len());
                    (self.metadata, self.metadata_size) = (copy, bytes.len());
                }
            }
        }
    }

    /// Frees what it points to.
    fn clear(&mut self) {
        // SAFETY: the strings are C's memory, the private part is ours.
        unsafe {
            libc::free(self.topic.cast());
            libc::free(self.metadata);
            if !self._private.is_null() {
                drop(Box::from_raw(self._private.cast::<Private>()));
            }
        }
        self.topic = null_mut();
        self.metadata = null_mut();
        self._private = null_mut();
    }
}

impl rd_kafka_topic_partition_list_t {
    /// An empty list with room for `size`; NULL when memory is out.
    pub fn new(size: usize) -> *mut Self {
        // SAFETY: C's memory; all zero is an empty list.
        unsafe {
            let list = libc::calloc(1, size_of::<Self>()).cast::<Self>();
            if let Some(list) = list.as_mut() {
                list.reserve(size);
            }
            list
        }
    }

    pub fn elems(&self) -> &[rd_kafka_topic_partition_t] {
        if self.elems.is_null() || self.cnt <= 0 {
            return &[];
        }
        // SAFETY: `cnt` elements are valid.
        unsafe { std::slice::from_raw_parts(self.elems, self.cnt as usize) }
    }

    pub fn elems_mut(&mut self) -> &mut [rd_kafka_topic_partition_t] {
        if self.elems.is_null() || self.cnt <= 0 {
            return &mut [];
        }
        // SAFETY: `cnt` elements are valid.
        unsafe { std::slice::from_raw_parts_mut(self.elems, self.cnt as usize) }
    }

    /// Adds an element, with no offset (`RD_KAFKA_OFFSET_INVALID`) and nothing else; `None` when memory is out.
    pub fn add(&mut self, topic: &CStr, partition: i32) -> Option<&mut rd_kafka_topic_partition_t> {
        if self.cnt == self.size {
            // librdkafka's steps, which C sees in `size`.
            let size = self.size as usize;
            self.reserve(size + if size < 2 { 1 } else { size.max(32) });
        }
        if self.cnt >= self.size {
            return None;
        }
        // SAFETY: there is room for one more; the copy of the name is C's memory.
        let element = unsafe {
            let place = self.elems.add(self.cnt as usize);
            place.write_bytes(0, 1);
            (*place).topic = libc::strdup(topic.as_ptr());
            &mut *place
        };
        element.partition = partition;
        element.offset = RD_KAFKA_OFFSET_INVALID;
        self.cnt += 1;
        Some(element)
    }

    pub fn position(&self, topic: &CStr, partition: i32) -> Option<usize> {
        self.elems().iter().position(|element| element.partition == partition && element.topic() == topic)
    }

    pub fn find_mut(&mut self, topic: &CStr, partition: i32) -> Option<&mut rd_kafka_topic_partition_t> {
        let at = self.position(topic, partition)?;
        Some(&mut self.elems_mut()[at])
    }

    /// A list that C owns; NULL when memory is out.
    pub fn copy(&self) -> *mut Self {
        let list = Self::new(self.elems().len());
        // SAFETY: just made, or NULL.
        if let Some(copy) = unsafe { list.as_mut() } {
            for element in self.elems() {
                if let Some(place) = copy.add(element.topic(), element.partition) {
                    place.update_from(element);
                }
            }
        }
        list
    }

    fn remove(&mut self, at: usize) {
        self.elems_mut()[at].clear();
        let after = self.cnt as usize - at - 1;
        // SAFETY: both ranges are inside the elements.
        unsafe { std::ptr::copy(self.elems.add(at + 1), self.elems.add(at), after) };
        self.cnt -= 1;
    }

    fn reserve(&mut self, size: usize) {
        if size == 0 || size > c_int::MAX as usize {
            return;
        }
        // SAFETY: C's memory; realloc keeps what is there.
        let elems =
            unsafe { libc::realloc(self.elems.cast(), size * size_of::<rd_kafka_topic_partition_t>()) };
        if !elems.is_null() {
            (self.elems, self.size) = (elems.cast(), size as c_int);
        }
    }

    fn sort(&mut self, cmp: rd_kafka_topic_partition_list_cmp_t, opaque: *mut c_void) {
        self.elems_mut().sort_by(|a, b| {
            let Some(cmp) = cmp else { return by_topic_and_partition(a, b) };
            // SAFETY: the application's function on two elements (required by the C functions that call this).
            let order = unsafe { cmp(std::ptr::from_ref(a).cast(), std::ptr::from_ref(b).cast(), opaque) };
            order.cmp(&0)
        });
    }
}

fn by_topic_and_partition(a: &rd_kafka_topic_partition_t, b: &rd_kafka_topic_partition_t) -> Ordering {
    a.topic().cmp(b.topic()).then(a.partition.cmp(&b.partition))
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub extern "C" fn rd_kafka_topic_partition_list_new(size: c_int) -> *mut rd_kafka_topic_partition_list_t {
    rd_kafka_topic_partition_list_t::new(usize::try_from(size).unwrap_or(0))
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_partition_list_destroy(list: *mut rd_kafka_topic_partition_list_t) {
    // SAFETY: `list` is NULL or a list of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_topic_partition_list_destroy`).
    unsafe {
        let Some(contents) = list.as_mut() else { return };
        contents.elems_mut().iter_mut().for_each(rd_kafka_topic_partition_t::clear);
        libc::free(contents.elems.cast());
        libc::free(list.cast());
    }
}

/// A partition that is in no list; C frees it with `rd_kafka_topic_partition_destroy`.
pub(crate) fn lone(topic: &CStr, partition: i32, offset: i64) -> *mut rd_kafka_topic_partition_t {
    // SAFETY: C's memory, zeroed, which is a valid element without pointers.
    unsafe {
        let made: *mut rd_kafka_topic_partition_t =
            libc::calloc(1, size_of::<rd_kafka_topic_partition_t>()).cast();
        if let Some(made) = made.as_mut() {
            made.topic = libc::strdup(topic.as_ptr());
            made.partition = partition;
            made.offset = offset;
        }
        made
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_partition_destroy(rktpar: *mut rd_kafka_topic_partition_t) {
    // SAFETY: `rktpar` is NULL or an element of such a list (rdkafka.h, `rd_kafka_topic_partition_destroy`).
    unsafe {
        if let Some(element) = rktpar.as_mut() {
            element.clear();
            libc::free(rktpar.cast());
        }
    }
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_partition_list_add(
    list: *mut rd_kafka_topic_partition_list_t,
    topic: *const c_char,
    partition: i32,
) -> *mut rd_kafka_topic_partition_t {
    // SAFETY: `list` is NULL or a list of this library, not yet destroyed; `topic` is a C string (rdkafka.h,
    // `rd_kafka_topic_partition_list_add`).
    unsafe {
        let (Some(list), false) = (list.as_mut(), topic.is_null()) else { return null_mut() };
        list.add(CStr::from_ptr(topic), partition).map_or(null_mut(), std::ptr::from_mut)
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_partition_list_add_range(
    list: *mut rd_kafka_topic_partition_list_t,
    topic: *const c_char,
    start: i32,
    stop: i32,
) {
    // SAFETY: `list` is NULL or a list of this library, not yet destroyed; `topic` is a C string (rdkafka.h,
    // `rd_kafka_topic_partition_list_add_range`).
    unsafe {
        let (Some(list), false) = (list.as_mut(), topic.is_null()) else { return };
        for partition in start..=stop {
            list.add(CStr::from_ptr(topic), partition);
        }
    }
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_partition_list_del(
    list: *mut rd_kafka_topic_partition_list_t,
    topic: *const c_char,
    partition: i32,
) -> c_int {
    // SAFETY: `list` is NULL or a list of this library, not yet destroyed; `topic` is a C string (rdkafka.h,
    // `rd_kafka_topic_partition_list_del`).
    unsafe {
        let (Some(list), false) = (list.as_mut(), topic.is_null()) else { return 0 };
        let at = list.position(CStr::from_ptr(topic), partition);
        at.map(|at| list.remove(at)).is_some().into()
    }
}

#[on_panic(0)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_partition_list_del_by_idx(
    list: *mut rd_kafka_topic_partition_list_t,
    idx: c_int,
) -> c_int {
    // SAFETY: `list` is NULL or a list of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_topic_partition_list_del_by_idx`).
    let Some(list) = (unsafe { list.as_mut() }) else { return 0 };
    if idx < 0 || idx >= list.cnt {
        return 0;
    }
    list.remove(idx as usize);
    1
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_partition_list_copy(
    src: *const rd_kafka_topic_partition_list_t,
) -> *mut rd_kafka_topic_partition_list_t {
    // SAFETY: `src` is NULL or a list of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_topic_partition_list_copy`).
    unsafe { src.as_ref() }.map_or(null_mut(), rd_kafka_topic_partition_list_t::copy)
}

#[on_panic(RD_KAFKA_RESP_ERR__FAIL)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_partition_list_set_offset(
    list: *mut rd_kafka_topic_partition_list_t,
    topic: *const c_char,
    partition: i32,
    offset: i64,
) -> rd_kafka_resp_err_t {
    // SAFETY: `list` is NULL or a list of this library, not yet destroyed; `topic` is a C string (rdkafka.h,
    // `rd_kafka_topic_partition_list_set_offset`).
    unsafe {
        let (Some(list), false) = (list.as_mut(), topic.is_null()) else {
            return RD_KAFKA_RESP_ERR__INVALID_ARG;
        };
        match list.find_mut(CStr::from_ptr(topic), partition) {
            Some(element) => element.offset = offset,
            None => return RD_KAFKA_RESP_ERR__UNKNOWN_PARTITION,
        }
    }
    RD_KAFKA_RESP_ERR_NO_ERROR
}

#[on_panic(null_mut())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_partition_list_find(
    list: *const rd_kafka_topic_partition_list_t,
    topic: *const c_char,
    partition: i32,
) -> *mut rd_kafka_topic_partition_t {
    // SAFETY: `list` is NULL or a list of this library, not yet destroyed; `topic` is a C string (rdkafka.h,
    // `rd_kafka_topic_partition_list_find`).
    unsafe {
        let (Some(found), false) = (list.as_ref(), topic.is_null()) else { return null_mut() };
        found.position(CStr::from_ptr(topic), partition).map_or(null_mut(), |at| found.elems.add(at))
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_partition_list_sort(
    list: *mut rd_kafka_topic_partition_list_t,
    cmp: rd_kafka_topic_partition_list_cmp_t,
    cmp_opaque: *mut c_void,
) {
    // SAFETY: `list` is NULL or a list of this library, not yet destroyed (rdkafka.h,
    // `rd_kafka_topic_partition_list_sort`).
    if let Some(list) = unsafe { list.as_mut() } {
        // An order that contradicts itself makes the sort panic; the elements are all there then, in some order.
        list.sort(cmp, cmp_opaque);
    }
}

#[on_panic(())]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_partition_set_leader_epoch(
    rktpar: *mut rd_kafka_topic_partition_t,
    leader_epoch: i32,
) {
    // SAFETY: `rktpar` is NULL or an element of such a list (rdkafka.h, `rd_kafka_topic_partition_set_leader_epoch`).
    let Some(element) = (unsafe { rktpar.as_mut() }) else { return };
    element.set_leader_epoch(Some(leader_epoch));
}

#[on_panic(-1)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn rd_kafka_topic_partition_get_leader_epoch(
    rktpar: *const rd_kafka_topic_partition_t,
) -> i32 {
    // SAFETY: `rktpar` is NULL or an element of such a list (rdkafka.h, `rd_kafka_topic_partition_get_leader_epoch`).
    unsafe { rktpar.as_ref() }.map_or(-1, rd_kafka_topic_partition_t::leader_epoch)
}
