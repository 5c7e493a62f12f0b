/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns what is known of peers: whether a device can reach another, asked once per pair (aten's
 * PeerToPeerAccess.cpp), and which ones do, by the device whose memory they reach.
 *
 * A thread that enables a peer enters it first, and then grants access to existing mappings. A
 * thread that maps meanwhile either sees the peer, or its mapping is granted access too: the memory
 * layer's callback waits for mappings that are in progress. */
#include "base/status.h"
#include "device/capture.h"

enum answer { UNKNOWN, NO, YES };

/* Enum answer; [device][peer] */
static _Atomic(signed char) answers[TARN_MAX_DEVICES][TARN_MAX_DEVICES];
/* By device: a bit for each that reaches it */
static atomic_uint_fast64_t reached_by[TARN_MAX_DEVICES];
/* One peer is enabled at a time */
static mutex enable_lock = MUTEX_INITIALIZER(LOCK_ENABLE);
static tarn_status (*enable_callback)(struct device *device, int peer); /* enable_lock */

void peers_on_enable(tarn_status (*callback)(struct device *device, int peer))
{
    mutex_lock(&enable_lock);
    enable_callback = callback;
    mutex_unlock(&enable_lock);
}

int peers_of(const struct device *device, int devices[TARN_MAX_DEVICES])
{
    uint64_t bits = atomic_load_explicit(&reached_by[device->number], memory_order_acquire);
    int count = 0;
    devices[count++] = device->number;
    for (; bits; bits &= bits - 1)
        devices[count++] = __builtin_ctzll(bits);
    return count;
}

static tarn_status peer_possible(struct device *device, struct device *peer, bool *possible)
{
    if (device == peer) {
        *possible = true;
        return TARN_OK;
    }
    _Atomic(signed char) *answer = &answers[device->number][peer->number];
    signed char known = atomic_load_explicit(answer, memory_order_relaxed);
    if (known == UNKNOWN) {
        bool found = false;
        tarn_status status =
            device_note(device, driver->peer_possible(device->number, peer->number, &found));
        if (status)
            return status;
        known = found ? YES : NO;
        atomic_store_explicit(answer, known, memory_order_relaxed);
    }
    *possible = known == YES;
    return TARN_OK;
}

/* Under enable_lock. A failure takes the peer off the list again: what was granted by then stays
 * so, which harms none. */
static tarn_status peer_enable_locked(struct device *device, struct device *peer)
{
    uint64_t bit = UINT64_C(1) << device->number;
    if (atomic_load(&reached_by[peer->number]) & bit)
        return TARN_OK;
    tarn_status status = device_note(device, driver->peer_enable(device->number, peer->number));
    if (status)
        return status;
    atomic_fetch_or(&reached_by[peer->number], bit);
    if (enable_callback) {
        status = enable_callback(peer, device->number);
        if (status)
            atomic_fetch_and(&reached_by[peer->number], ~bit);
    }
    return status;
}

static tarn_status find_pair(int device, int peer, struct device *found[2])
{
    tarn_status status = device_layer_ready();
    if (!status)
        status = device_find(device, &found[0]);
    if (!status)
        status = device_find(peer, &found[1]);
    if (status)
        return status;
    status = device_check(found[0]);
    return status ? status : device_check(found[1]);
}

tarn_status tarn_device_peer_enable(int device, int peer)
{
    struct device *pair[2];
    bool possible = false;
    tarn_status status = find_pair(device, peer, pair);
    if (!status)
        status = peer_possible(pair[0], pair[1], &possible);
    if (status)
        return status;
    if (!possible)
        return failed(TARN_ERROR_NOT_SUPPORTED, "device %d cannot access the memory of device %d",
                      device, peer);
    if (device == peer)
        return TARN_OK;
    mutex_lock(&enable_lock);
    status = peer_enable_locked(pair[0], pair[1]);
    mutex_unlock(&enable_lock);
    return status;
}
