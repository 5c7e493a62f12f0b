// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors

//! A program in Rust, with nothing but what bindgen made of the headers: memory that the processor reaches, streams, a pool and a scope,
//! statistics, a library of its own with handles, those of vendors that it is given, and errors by their status.
#![allow(clippy::missing_safety_doc)]

#[allow(dead_code, non_camel_case_types, non_snake_case, non_upper_case_globals)]
mod tarn {
    include!(env!("TARN_BINDINGS"));
}
use std::ffi::{c_void, CStr, CString};
use std::mem::{size_of, zeroed};
use std::os::raw::c_int;
use std::ptr::{null, null_mut};
use tarn::*;

#[link(name = "tarn")]
extern "C" {}

/// What a call that failed gave, and why.
#[derive(Debug)]
struct Failure {
    status: tarn_status,
    text: String,
}

fn ok(status: tarn_status) -> Result<(), Failure> {
    if status == TARN_OK {
        return Ok(());
    }
    let text = unsafe { CStr::from_ptr(tarn_last_error()) }.to_string_lossy().into_owned();
    Err(Failure { status, text })
}

fn memory() -> Result<(), Failure> {
    unsafe {
        let block = tarn_malloc(1000);
        assert!(!block.is_null() && block as usize % TARN_BLOCK_UNIT as usize == 0);
        std::ptr::write_bytes(block as *mut u8, 7, 1000);
        let mut info = tarn_block_info { size: size_of::<tarn_block_info>(), ..zeroed() };
        ok(tarn_pointer_info_get((block as *const u8).add(999) as *const c_void, &mut info))?;
        assert!(info.base == block && info.requested == 1000 && info.usable_size >= 1000 && info.device == 0);
        ok(tarn_free(block))?;

        let again = ok(tarn_free(block)).unwrap_err();
        assert_eq!(again.status, TARN_ERROR_DOUBLE_FREE);
        assert!(!again.text.is_empty());
        assert_eq!(CStr::from_ptr(tarn_status_name(again.status)).to_str(), Ok("TARN_ERROR_DOUBLE_FREE"));
        let mut local = 0u8;
        assert_eq!(ok(tarn_free(&mut local as *mut u8 as *mut c_void)).unwrap_err().status, TARN_ERROR_INVALID_POINTER);
        assert!(tarn_malloc((TARN_MAX_SIZE + 1) as usize).is_null());
        assert_eq!(tarn_last_status(), TARN_ERROR_OUT_OF_MEMORY);
    }
    Ok(())
}

fn streams() -> Result<(), Failure> {
    unsafe {
        let (mut stream, mut block) = (0, null_mut());
        ok(tarn_stream_lease(0, 0, &mut stream))?;
        assert_ne!(stream, TARN_STREAM_LEGACY.into());
        let options = tarn_alloc_options {
            size: size_of::<tarn_alloc_options>(),
            device: TARN_CURRENT_DEVICE,
            stream,
            alignment: TARN_MAX_ALIGNMENT as usize,
            ..zeroed()
        };
        ok(tarn_alloc(&options, 5000, &mut block))?;
        assert_eq!(block as usize % TARN_MAX_ALIGNMENT as usize, 0);
        ok(tarn_record_stream(block, TARN_STREAM_PER_THREAD.into()))?;
        ok(tarn_free(block))?;
        ok(tarn_stream_synchronize(stream))?;
        ok(tarn_stream_return(stream))?;

        let unset = tarn_alloc_options { size: 0, ..options };
        let refused = ok(tarn_alloc(&unset, 5000, &mut block)).unwrap_err();
        assert_eq!(refused.status, TARN_ERROR_INVALID_ARGUMENT);
        assert!(refused.text.contains("sizeof(tarn_alloc_options)"), "{}", refused.text);
    }
    Ok(())
}

fn pools() -> Result<(), Failure> {
    unsafe {
        let (mut pool, mut scope) = (null_mut(), 0);
        let options =
            tarn_pool_options { size: size_of::<tarn_pool_options>(), device: TARN_CURRENT_DEVICE, no_remap: true, ..zeroed() };
        ok(tarn_pool_create(&options, &mut pool))?;
        let mut known = tarn_pool_info { size: size_of::<tarn_pool_info>(), ..zeroed() };
        ok(tarn_pool_info_get(pool, &mut known))?;
        assert_eq!(known.limit, TARN_NO_LIMIT as usize);
        ok(tarn_scope_begin(pool, TARN_SCOPE_THREAD, TARN_STREAM_LEGACY.into(), &mut scope))?;
        let inside = tarn_malloc(3 << 20);
        ok(tarn_scope_end(scope))?;
        let outside = tarn_malloc(3 << 20);

        let mut info = tarn_block_info { size: size_of::<tarn_block_info>(), ..zeroed() };
        let mut stats = tarn_stats { size: size_of::<tarn_stats>(), ..zeroed() };
        ok(tarn_pointer_info_get(inside, &mut info))?;
        assert_eq!((info.pool.first, info.pool.second), (known.id.first, known.id.second));
        ok(tarn_pointer_info_get(outside, &mut info))?;
        assert_ne!((info.pool.first, info.pool.second), (known.id.first, known.id.second));
        ok(tarn_pool_stats_get(pool, &mut stats))?;
        assert_eq!(stats.requested_bytes[TARN_STAT_ALL as usize].current, 3 << 20);
        ok(tarn_device_stats_get(0, &mut stats))?;
        assert_eq!(stats.requested_bytes[TARN_STAT_LARGE_POOL as usize].current, 6 << 20);
        ok(tarn_free(inside))?;
        ok(tarn_free(outside))?;
        ok(tarn_pool_release(pool))?;
        ok(tarn_device_stats_get(0, &mut stats))?;
        assert_eq!(stats.allocation[TARN_STAT_ALL as usize].current, 0);
    }
    Ok(())
}

extern "C" fn make(handle: *mut *mut c_void) -> c_int {
    unsafe { *handle = Box::into_raw(Box::new(0u64)) as *mut c_void };
    0
}

extern "C" fn end(handle: *mut c_void) -> c_int {
    drop(unsafe { Box::from_raw(handle as *mut u64) });
    0
}

extern "C" fn bind(handle: *mut c_void, _stream: *mut c_void) -> c_int {
    unsafe { *(handle as *mut u64) += 1 };
    0
}

fn handles() -> Result<(), Failure> {
    unsafe {
        let row = tarn_library_row {
            size: size_of::<tarn_library_row>(),
            name: b"rusty\0".as_ptr() as *const _,
            sonames: null(),
            create: Some(make),
            destroy: Some(end),
            set_stream: Some(bind),
            ..zeroed()
        };
        let (mut library, mut handle, mut again) = (0, null_mut(), null_mut());
        ok(tarn_library_register(&row, &mut library))?;
        ok(tarn_handle_get(library, TARN_STREAM_CURRENT.into(), &mut handle))?;
        ok(tarn_handle_get(library, TARN_STREAM_CURRENT.into(), &mut again))?;
        assert!(!handle.is_null() && handle == again);
        assert!(*(handle as *const u64) <= 1); // bound at most once, since nothing changed
        let mut stats = tarn_handle_stats { size: size_of::<tarn_handle_stats>(), ..zeroed() };
        ok(tarn_handle_stats_get(library, 0, &mut stats))?;
        assert_eq!((stats.created, stats.in_use), (1, 1));
        assert_eq!(ok(tarn_library_register(&row, &mut library)).unwrap_err().status, TARN_ERROR_INVALID_ARGUMENT);
    }
    Ok(())
}

/// A vendor's library, by name.
fn vendor(name: &str) -> Result<(), Failure> {
    unsafe {
        let name = CString::new(name).unwrap();
        let (mut library, mut handle, mut again) = (0, null_mut(), null_mut());
        ok(tarn_library_find(name.as_ptr(), &mut library))?;
        ok(tarn_handle_get(library, TARN_STREAM_CURRENT.into(), &mut handle))?;
        ok(tarn_handle_get(library, TARN_STREAM_CURRENT.into(), &mut again))?;
        assert!(!handle.is_null() && handle == again);
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    memory()?;
    streams()?;
    pools()?;
    handles()?;
    for name in std::env::args().skip(1) {
        vendor(&name)?;
    }
    ok(unsafe { tarn_shutdown() })?;
    assert!(unsafe { tarn_malloc(1) }.is_null());
    assert_eq!(unsafe { tarn_last_status() }, TARN_ERROR_SHUTDOWN);
    Ok(())
}
