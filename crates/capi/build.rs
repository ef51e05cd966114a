//! The library's name for the dynamic linker, and the C part that decodes variable arguments.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,librdkafka.so.1");
}
