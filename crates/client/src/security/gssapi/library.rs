//! The system's GSS-API library (RFC 2744), loaded at run time: a client without Kerberos does not need it.
//!
//! All calls of C are in this file. [`KerberosContext`] is the safe interface above them.

#![allow(unsafe_code, reason = "the GSS-API is a C library")]
#![warn(clippy::undocumented_unsafe_blocks)]

use std::ffi::{CStr, c_int, c_void};
use std::ptr::{self, null_mut};
use std::sync::OnceLock;

use super::{SecurityContext, Step};

/// MIT's library, then Heimdal's.
const FILES: [&CStr; 2] = [c"libgssapi_krb5.so.2", c"libgssapi.so.3"];

/// GSS_S_CONTINUE_NEEDED: the peer must answer before the context is complete.
const CONTINUE_NEEDED: u32 = 1;
/// The bits of a major status that are errors: calling errors and routine errors.
const ERROR_BITS: u32 = 0xffff_0000;
/// GSS_C_MUTUAL_FLAG, GSS_C_SEQUENCE_FLAG and GSS_C_INTEG_FLAG: the broker proves its identity, and the message about
/// security layers is protected.
const FLAGS: u32 = 2 | 8 | 32;
/// GSS_C_INITIATE.
const INITIATE: c_int = 1;
/// GSS_C_GSS_CODE and GSS_C_MECH_CODE.
const MAJOR_CODE: c_int = 1;
const MECHANISM_CODE: c_int = 2;
/// A status has one or two messages.
const MESSAGES_MAX: usize = 4;

/// 1.2.840.113554.1.2.2: Kerberos 5.
static KERBEROS: Oid = Oid::new(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02");
/// 1.2.840.113554.1.2.1.4: GSS_C_NT_HOSTBASED_SERVICE.
static HOSTBASED_SERVICE: Oid = Oid::new(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x01\x04");
/// 1.2.840.113554.1.2.2.1: GSS_KRB5_NT_PRINCIPAL_NAME.
static PRINCIPAL_NAME: Oid = Oid::new(b"\x2a\x86\x48\x86\xf7\x12\x01\x02\x02\x01");

/// `gss_OID_desc`.
#[repr(C)]
struct Oid {
    length: u32,
    elements: *const c_void,
}

// SAFETY: the bytes are static and never change.
unsafe impl Sync for Oid {}

impl Oid {
    const fn new(elements: &'static [u8]) -> Self {
        Self { length: elements.len() as u32, elements: elements.as_ptr().cast() }
    }

    /// The library reads object identifiers and never writes them.
    const fn as_ptr(&self) -> *mut Self {
        ptr::from_ref(self).cast_mut()
    }
}

/// `gss_OID_set_desc`.
#[repr(C)]
struct OidSet {
    count: usize,
    elements: *mut Oid,
}

/// `gss_buffer_desc`.
#[repr(C)]
struct Buffer {
    length: usize,
    value: *mut c_void,
}

impl Buffer {
    const EMPTY: Self = Self { length: 0, value: null_mut() };

    /// An input buffer: the library reads it and never writes it.
    const fn reading(bytes: &[u8]) -> Self {
        Self { length: bytes.len(), value: bytes.as_ptr().cast_mut().cast() }
    }
}

/// `gss_name_t`, `gss_cred_id_t`, `gss_ctx_id_t`: pointers to types that only the library knows.
type Handle = *mut c_void;

type ImportName = unsafe extern "C" fn(*mut u32, *mut Buffer, *mut Oid, *mut Handle) -> u32;
type Release = unsafe extern "C" fn(*mut u32, *mut Handle) -> u32;
type ReleaseBuffer = unsafe extern "C" fn(*mut u32, *mut Buffer) -> u32;
type DeleteSecContext = unsafe extern "C" fn(*mut u32, *mut Handle, *mut Buffer) -> u32;
type AcquireCred = unsafe extern "C" fn(
    *mut u32,
    Handle,
    u32,
    *mut OidSet,
    c_int,
    *mut Handle,
    *mut *mut OidSet,
    *mut u32,
) -> u32;
type InitSecContext = unsafe extern "C" fn(
    *mut u32,
    Handle,
    *mut Handle,
    Handle,
    *mut Oid,
    u32,
    u32,
    *mut c_void,
    *mut Buffer,
    *mut *mut Oid,
    *mut Buffer,
    *mut u32,
    *mut u32,
) -> u32;
type Wrap = unsafe extern "C" fn(*mut u32, Handle, c_int, u32, *mut Buffer, *mut c_int, *mut Buffer) -> u32;
type Unwrap = unsafe extern "C" fn(*mut u32, Handle, *mut Buffer, *mut Buffer, *mut c_int, *mut u32) -> u32;
type DisplayStatus = unsafe extern "C" fn(*mut u32, u32, c_int, *mut Oid, *mut u32, *mut Buffer) -> u32;

/// The functions of the library. It is never unloaded.
pub(crate) struct Library {
    import_name: ImportName,
    release_name: Release,
    acquire_cred: AcquireCred,
    release_cred: Release,
    init_sec_context: InitSecContext,
    delete_sec_context: DeleteSecContext,
    wrap: Wrap,
    unwrap: Unwrap,
    release_buffer: ReleaseBuffer,
    display_status: DisplayStatus,
}

impl Library {
    /// The library of this process, loaded at the first call. The error names the files and Debian's package.
    pub(crate) fn load() -> Result<&'static Self, String> {
        static LOADED: OnceLock<Library> = OnceLock::new();
        if let Some(library) = LOADED.get() {
            return Ok(library);
        }
        let library = Self::open_first(&FILES)?;
        Ok(LOADED.get_or_init(|| library))
    }

    fn open_first(files: &[&CStr]) -> Result<Self, String> {
        let mut problems = Vec::new();
        for file in files {
            match Self::open(file) {
                Ok(library) => return Ok(library),
                Err(problem) => problems.push(problem),
            }
        }
        Err(format!(
            "the GSS-API library cannot be loaded ({}): install Debian's package libgssapi-krb5-2, or its like",
            problems.join("; ")
        ))
    }

    fn open(file: &CStr) -> Result<Self, String> {
        // SAFETY: the name is a C string (POSIX, `dlopen`). Both files are GSS-API libraries, whose initialisers any
        // program runs that is linked with them.
        let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(loader_error());
        }
        // SAFETY: the handle is from `dlopen` and is never closed. Each symbol has the C prototype of RFC 2744, appendix
        // A, of which its type is the translation.
        unsafe {
            Ok(Self {
                import_name: symbol(library, c"gss_import_name")?,
                release_name: symbol(library, c"gss_release_name")?,
                acquire_cred: symbol(library, c"gss_acquire_cred")?,
                release_cred: symbol(library, c"gss_release_cred")?,
                init_sec_context: symbol(library, c"gss_init_sec_context")?,
                delete_sec_context: symbol(library, c"gss_delete_sec_context")?,
                wrap: symbol(library, c"gss_wrap")?,
                unwrap: symbol(library, c"gss_unwrap")?,
                release_buffer: symbol(library, c"gss_release_buffer")?,
                display_status: symbol(library, c"gss_display_status")?,
            })
        }
    }

    fn import_name(&'static self, name: &str, name_type: &Oid) -> Result<Name, String> {
        let (mut minor, mut handle) = (0, null_mut());
        let mut text = Buffer::reading(name.as_bytes());
        // SAFETY: all pointers are to values that outlive the call (RFC 2744, 5.16).
        let major =
            unsafe { (self.import_name)(&raw mut minor, &raw mut text, name_type.as_ptr(), &raw mut handle) };
        self.check(major, minor)?;
        Ok(Name { library: self, handle })
    }

    /// The tickets of `principal`; or `None`, and the library takes those of its default cache.
    fn credential_of(&'static self, principal: &str) -> Option<Credential> {
        let name = self.import_name(principal, &PRINCIPAL_NAME).ok()?;
        let (mut minor, mut handle) = (0, null_mut());
        let mut mechanisms = OidSet { count: 1, elements: KERBEROS.as_ptr() };
        // SAFETY: `name` is from `gss_import_name`; the other pointers are to values that outlive the call, or null
        // (RFC 2744, 5.2).
        let major = unsafe {
            (self.acquire_cred)(
                &raw mut minor,
                name.handle,
                0,
                &raw mut mechanisms,
                INITIATE,
                &raw mut handle,
                null_mut(),
                null_mut(),
            )
        };
        (major & ERROR_BITS == 0).then(|| Credential { library: self, handle })
    }

    /// The error of a call.
    fn check(&self, major: u32, minor: u32) -> Result<(), String> {
        if major & ERROR_BITS == 0 {
            return Ok(());
        }
        let mut texts = self.status_texts(major, MAJOR_CODE);
        if minor != 0 {
            texts.extend(self.status_texts(minor, MECHANISM_CODE));
        }
        Err(texts.join(": "))
    }

    fn status_texts(&self, status: u32, kind: c_int) -> Vec<String> {
        let (mut texts, mut minor, mut more) = (Vec::new(), 0, 0);
        for _ in 0..MESSAGES_MAX {
            let mut text = Buffer::EMPTY;
            // SAFETY: all pointers are to values that outlive the call (RFC 2744, 5.11).
            let major = unsafe {
                (self.display_status)(
                    &raw mut minor,
                    status,
                    kind,
                    KERBEROS.as_ptr(),
                    &raw mut more,
                    &raw mut text,
                )
            };
            let text = String::from_utf8_lossy(&self.taken(text)).trim().to_owned();
            if major & ERROR_BITS != 0 {
                break;
            }
            texts.push(text);
            if more == 0 {
                break;
            }
        }
        texts
    }

    /// Copies a buffer of the library and frees it.
    fn taken(&self, mut buffer: Buffer) -> Vec<u8> {
        let bytes = if buffer.value.is_null() {
            Vec::new()
        } else {
            // SAFETY: an output buffer has `length` bytes at `value` until it is released (RFC 2744, 3.2).
            unsafe { std::slice::from_raw_parts(buffer.value.cast::<u8>(), buffer.length) }.to_vec()
        };
        let mut minor = 0;
        // SAFETY: the library allocated the buffer, or it is empty (RFC 2744, 5.26).
        unsafe { (self.release_buffer)(&raw mut minor, &raw mut buffer) };
        bytes
    }
}

/// The loader's text about its last failure in this thread.
fn loader_error() -> String {
    // SAFETY: no arguments; the text is a C string of this thread until its next call of the loader (POSIX,
    // `dlerror`).
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "no reason given".into();
    }
    // SAFETY: as above, and not null.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

/// Looks up a function.
///
/// # Safety
/// `library` is a handle from `dlopen`, and `F` is the type of a pointer to the function `name`.
unsafe fn symbol<F: Copy>(library: *mut c_void, name: &CStr) -> Result<F, String> {
    const { assert!(size_of::<F>() == size_of::<*mut c_void>()) };
    // SAFETY: the handle is open, and the name is a C string (POSIX, `dlsym`).
    let address = unsafe { libc::dlsym(library, name.as_ptr()) };
    if address.is_null() {
        return Err(loader_error());
    }
    // SAFETY: the address is that of the function, and `F` has its type, by this function's contract; the sizes are
    // equal.
    Ok(unsafe { std::mem::transmute_copy(&address) })
}

/// A `gss_name_t`.
struct Name {
    library: &'static Library,
    handle: Handle,
}

impl Drop for Name {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the handle is from `gss_import_name` and is not used any more (RFC 2744, 5.28).
        unsafe { (self.library.release_name)(&raw mut minor, &raw mut self.handle) };
    }
}

/// A `gss_cred_id_t`.
struct Credential {
    library: &'static Library,
    handle: Handle,
}

impl Drop for Credential {
    fn drop(&mut self) {
        let mut minor = 0;
        // SAFETY: the handle is from `gss_acquire_cred` and is not used any more (RFC 2744, 5.27).
        unsafe { (self.library.release_cred)(&raw mut minor, &raw mut self.handle) };
    }
}

/// A context between this client and a broker, with Kerberos 5.
pub(crate) struct KerberosContext {
    library: &'static Library,
    /// The broker's name.
    target: Name,
    /// `None` for the default cache.
    credential: Option<Credential>,
    handle: Handle,
}

// SAFETY: the library's objects belong to no thread; they only must not be used by two threads at a time, and each call
// borrows the context exclusively.
unsafe impl Send for KerberosContext {}

impl KerberosContext {
    /// A context for the service `service` of `host`. It is established by [`SecurityContext::step`].
    ///
    /// It uses the tickets of `principal` if a cache has them, and the default cache otherwise.
    pub(crate) fn new(service: &str, host: &str, principal: &str) -> Result<Self, String> {
        let library = Library::load()?;
        let target = library.import_name(&format!("{service}@{host}"), &HOSTBASED_SERVICE)?;
        let credential = library.credential_of(principal);
        Ok(Self { library, target, credential, handle: null_mut() })
    }
}

impl SecurityContext for KerberosContext {
    fn step(&mut self, token: &[u8]) -> Result<Step, String> {
        let (mut minor, mut output) = (0, Buffer::EMPTY);
        let mut input = Buffer::reading(token);
        let credential = self.credential.as_ref().map_or(null_mut(), |credential| credential.handle);
        // SAFETY: the handles are from this library, or null where RFC 2744, 5.19 has a default: the default
        // credential, the first call's context, the longest lifetime and no channel bindings. All other pointers are
        // to values that outlive the call, or null for results that are not wanted.
        let major = unsafe {
            (self.library.init_sec_context)(
                &raw mut minor,
                credential,
                &raw mut self.handle,
                self.target.handle,
                KERBEROS.as_ptr(),
                FLAGS,
                0,
                null_mut(),
                &raw mut input,
                null_mut(),
                &raw mut output,
                null_mut(),
                null_mut(),
            )
        };
        let token = self.library.taken(output);
        self.library.check(major, minor)?;
        Ok(Step { token, is_complete: major & CONTINUE_NEEDED == 0 })
    }

    fn wrap(&mut self, message: &[u8]) -> Result<Vec<u8>, String> {
        let (mut minor, mut output) = (0, Buffer::EMPTY);
        let mut input = Buffer::reading(message);
        // SAFETY: the context is from `gss_init_sec_context`; all pointers are to values that outlive the call, or null
        // for a result that is not wanted (RFC 2744, 5.33).
        let major = unsafe {
            (self.library.wrap)(
                &raw mut minor,
                self.handle,
                0,
                0,
                &raw mut input,
                null_mut(),
                &raw mut output,
            )
        };
        let wrapped = self.library.taken(output);
        self.library.check(major, minor).map(|()| wrapped)
    }

    fn unwrap(&mut self, message: &[u8]) -> Result<Vec<u8>, String> {
        let (mut minor, mut output) = (0, Buffer::EMPTY);
        let mut input = Buffer::reading(message);
        // SAFETY: as in `wrap` (RFC 2744, 5.31).
        let major = unsafe {
            (self.library.unwrap)(
                &raw mut minor,
                self.handle,
                &raw mut input,
                &raw mut output,
                null_mut(),
                null_mut(),
            )
        };
        let message = self.library.taken(output);
        self.library.check(major, minor).map(|()| message)
    }
}

impl Drop for KerberosContext {
    fn drop(&mut self) {
        if self.handle.is_null() {
            return;
        }
        let mut minor = 0;
        // SAFETY: the handle is from `gss_init_sec_context` and is not used any more; no token is wanted (RFC 2744,
        // 5.9).
        unsafe { (self.library.delete_sec_context)(&raw mut minor, &raw mut self.handle, null_mut()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_library_is_named_with_its_package() {
        let Err(error) = Library::open_first(&[c"libgssapi-missing.so.2", c"libgssapi-absent.so.3"]) else {
            panic!("there are no such files");
        };
        for part in ["libgssapi-missing.so.2", "libgssapi-absent.so.3", "libgssapi-krb5-2"] {
            assert!(error.contains(part), "{error}");
        }
    }

    #[test]
    fn another_library_lacks_the_functions() {
        let Err(error) = Library::open_first(&[c"libc.so.6"]) else { panic!("it is not a GSS-API library") };
        assert!(error.contains("gss_import_name"), "{error}");
    }

    /// Debian's build machines may not have the library: the interop tests need it, this one does not.
    #[test]
    fn a_failure_of_the_library_has_its_texts() {
        let Ok(library) = Library::load() else { return };
        // GSS_S_BAD_NAME.
        let error = library.check(2 << 16, 0).expect_err("an error");
        assert!(!error.is_empty(), "{error}");
        assert!(library.check(CONTINUE_NEEDED, 7).is_ok());
    }
}
