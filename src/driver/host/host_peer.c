/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Which host devices can access each other's memory: all, or none with TARN_HOST_PEERS=none. Mapped
 * memory is accessible to devices named by set_access, plain allocations to devices that enabled
 * the peer. A copy needs neither, as with CUDA's unified addresses. A fill, which stands for a
 * kernel, does. */
#include "base/status.h"
#include "base/variable.h"
#include "driver/host/host.h"

#include <stdlib.h>
#include <string.h>

static bool possible = true; /* set while no device is started */
/* Per device: a bit for each peer whose plain memory it can access. */
static atomic_uint_fast64_t reachable[TARN_MAX_DEVICES];

tarn_status host_peers_start(void)
{
    const char *value = variable_get("TARN_HOST_PEERS");
    bool none = value && strcmp(value, "none") == 0;
    if (value && !none && strcmp(value, "all") != 0)
        return failed(TARN_ERROR_CONFIGURATION, "TARN_HOST_PEERS=%s: the values are all and none",
                      value);
    possible = !none;
    for (int i = 0; i < TARN_MAX_DEVICES; i++)
        atomic_store(&reachable[i], 0);
    return TARN_OK;
}

static bool can_reach(int device, int peer)
{
    return device == peer || possible;
}

bool host_peer_enabled(int device, int peer)
{
    return device == peer ||
           (atomic_load_explicit(&reachable[device], memory_order_relaxed) >> peer & 1);
}

tarn_status host_peers_check(const char *call, int owner, const int *devices, int count,
                             uint64_t *bits)
{
    if (!devices || count <= 0)
        return failed(TARN_ERROR_INVALID_ARGUMENT, "host %s: the list of devices is empty", call);
    uint64_t result = 0;
    for (int i = 0; i < count; i++) {
        if (devices[i] < 0 || devices[i] >= atomic_load(&host.devices))
            return failed(TARN_ERROR_INVALID_DEVICE,
                          "host %s: there is no device %d, only %d in all", call, devices[i],
                          atomic_load(&host.devices));
        if (!can_reach(devices[i], owner))
            return failed(TARN_ERROR_NOT_SUPPORTED,
                          "host %s: device %d cannot access memory of device %d", call, devices[i],
                          owner);
        result |= UINT64_C(1) << devices[i];
    }
    *bits = result;
    return TARN_OK;
}

tarn_status host_peer_possible(int number, int peer, bool *result)
{
    struct host_device *device;
    tarn_status status = host_enter(DRIVER_CALL_peer_possible, number, &device);
    if (status)
        return status;
    if (peer < 0 || peer >= atomic_load(&host.devices))
        return host_no_device(DRIVER_CALL_peer_possible, peer);
    host_charge(device, DRIVER_CALL_peer_possible, 0, 0);
    *result = can_reach(number, peer);
    return TARN_OK;
}

tarn_status host_peer_enable(int number, int peer)
{
    struct host_device *device;
    uint64_t bits = 0;
    tarn_status status = host_enter_unsafe(DRIVER_CALL_peer_enable, number, &device);
    if (status)
        return status;
    if (peer < 0 || peer >= atomic_load(&host.devices))
        return host_no_device(DRIVER_CALL_peer_enable, peer);
    status = host_peers_check("peer_enable", peer, &number, 1, &bits);
    if (status)
        return status;
    atomic_fetch_or(&reachable[number], UINT64_C(1) << peer);
    host_charge(device, DRIVER_CALL_peer_enable, 0, 0);
    return TARN_OK;
}
