//! Symbols on both sides of the C files: exported functions that C implements, and functions of Rust that C calls.
//!
//! rustc exports no symbol of an object file that it did not compile. So the exported symbol is a function of Rust without a
//! body: one jump, which leaves the arguments and the return address as they are.

/// Exports `NAME`, which jumps to a hidden function of C with the same signature.
macro_rules! exported_from_c {
    ($(fn $exported:ident($($argument:ident: $type:ty),*) $(-> $returns:ty)? = $in_c:ident;)*) => {
        unsafe extern "C" {
            $(fn $in_c();)*
        }
        $(
            #[unsafe(naked)]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $exported($($argument: $type),*) $(-> $returns)? {
                #[cfg(target_arch = "x86_64")]
                std::arch::naked_asm!("jmp {}", sym $in_c);
                #[cfg(target_arch = "aarch64")]
                std::arch::naked_asm!("b {}", sym $in_c);
            }
        )*
    };
}
pub(crate) use exported_from_c;

/// A hidden symbol under which C finds a function of Rust, so that the library exports no names of its own.
macro_rules! called_from_c {
    ($($name:literal $function:ident,)*) => {
        $(
            #[cfg(target_arch = "x86_64")]
            std::arch::global_asm!(
                concat!(".globl ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ",@function"),
                concat!($name, ":"),
                "jmp {}",
                sym $function
            );
            #[cfg(target_arch = "aarch64")]
            std::arch::global_asm!(
                concat!(".globl ", $name),
                concat!(".hidden ", $name),
                concat!(".type ", $name, ",%function"),
                concat!($name, ":"),
                "b {}",
                sym $function
            );
        )*
    };
}
pub(crate) use called_from_c;
