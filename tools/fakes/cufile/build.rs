//! Gives the shared object the name that loaders of cuFile ask for: once it is loaded by its path,
//! `dlopen("libcufile.so.0")` finds it.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libcufile.so.0");
}
