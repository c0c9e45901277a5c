//! Unasked, cuFile is taken only where it would read past the CPU, as far as the machine's setup tells.

use std::path::Path;

use fake_cufile::control::{Double, Mode};
use gpumap::facts::GdsPath;
use gpumap::{ReadOptions, Reason, Route};

use super::machine::{configure, offer_peer_to_peer};
use super::{beside, by, landed, load_nvidia_fs};
use crate::child::this_test;
use crate::scene::{MIB, cool, pread};

/// Reads cold bytes unasked, by a runtime that finds out anew; why not by cuFile, if not.
fn why_not(library: &Double, path: &Path, from: u64) -> Option<Reason> {
    cool(path);
    let rt = beside(library, &[("GPUMAP_WORKERS", "1")]);
    let map = rt.open(path).unwrap();
    let (bytes, report) = landed(&rt, &map, from..8 * MIB, ReadOptions::new()).unwrap();
    assert!(bytes == pread(path, from, 8 * MIB - from));
    let taken = report.route(Route::Gds).is_some();
    assert_eq!(taken, report.reason(Route::Gds).is_none(), "{report:?}");
    report.reason(Route::Gds)
}

fn not_by(path: GdsPath) -> Option<Reason> {
    Some(Reason::NotAccelerated { path: Some(path) })
}

#[test]
fn by_nvidia_fs_unless_settings_have_reads_staged_or_refused() {
    by(this_test!(), Mode::Nvfs, |library, path| {
        assert_eq!(why_not(library, path, 0), not_by(GdsPath::Staged));
        load_nvidia_fs();
        assert_eq!(why_not(library, path, 0), None);
        configure(r#""properties": {"force_compat_mode": true}"#);
        assert_eq!(why_not(library, path, 0), not_by(GdsPath::Staged));
        let denied = r#""denylist": {"devices": ["/dev/nvme0n1"]}"#;
        configure(denied);
        assert_eq!(why_not(library, path, 0), not_by(GdsPath::Staged));
        configure(&format!(
            r#""properties": {{"allow_compat_mode": false}}, {denied}"#
        ));
        assert_eq!(why_not(library, path, 0), not_by(GdsPath::Refused));
    });
}

#[test]
fn from_peer_to_peer_without_nvidia_fs() {
    by(this_test!(), Mode::P2p, |library, path| {
        offer_peer_to_peer();
        assert_eq!(why_not(library, path, 0), None);
        configure("");
        assert_eq!(why_not(library, path, 0), not_by(GdsPath::Staged));
    });
}

#[test]
fn for_rows_that_begin_at_blocks() {
    by(this_test!(), Mode::Nvfs, |library, path| {
        load_nvidia_fs();
        assert_eq!(why_not(library, path, 4096), None);
        assert_eq!(why_not(library, path, 100), Some(Reason::Unaligned));
    });
}

/// So that reads ask about it by one look.
#[test]
fn what_was_found_out_is_kept() {
    by(this_test!(), Mode::Nvfs, |library, path| {
        load_nvidia_fs();
        let rt = beside(library, &[("GPUMAP_WORKERS", "1")]);
        let map = rt.open(path).unwrap();
        let is_taken = || {
            cool(path);
            let (_, report) = landed(&rt, &map, 0..8 * MIB, ReadOptions::new()).unwrap();
            report.route(Route::Gds).is_some()
        };
        assert!(is_taken());
        configure(r#""properties": {"force_compat_mode": true}"#);
        assert!(is_taken());
    });
}
