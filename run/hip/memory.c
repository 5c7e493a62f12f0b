/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* HIP's memory by address: plain, pitched, managed, stream-ordered, host memory, and memory of
 * other processes. As for CUDA, a block is taken out of the table before it is freed, and put back
 * if the free fails. */
#include "hip/enter.h"

/* More bytes than any device has. A request for them makes HIP give its own error for a
 * shortage. */
#define TOO_MUCH ((size_t)1 << 60)

static hip_result refusal(void)
{
    void *nothing = NULL;
    hip_result code = real.hipMalloc ? real.hipMalloc(&nothing, TOO_MUCH) : HIP_OUT_OF_MEMORY;
    return code ? code : HIP_OUT_OF_MEMORY;
}

hip_result hip_begin_on(struct charge *charge, enum run_kind kind, unsigned device, size_t size,
                        void *caller)
{
    return charge_begin(charge, kind, device, size, caller) ? refusal() : HIP_OK;
}

hip_result hip_begin(struct charge *charge, enum run_kind kind, size_t size, void *caller)
{
    run_context context;
    hip_result code = hip_begin_on(charge, kind, current_device(&context), size, caller);
    charge->block.context = context;
    return code;
}

void hip_end(struct charge *charge, hip_result code, enum block_space space, const void *key,
             size_t size)
{
    charge_end(charge, code, space, (uint64_t)(uintptr_t)key, size);
}

void hip_freed(bool known, hip_result code, const struct block *block, hip_stream stream)
{
    if (known && code)
        charge_restore(block);
    else if (known)
        charge_free(block, stream);
}

static bool take(const void *address, struct block *block)
{
    return blocks_take(SPACE_ADDRESS, (uint64_t)(uintptr_t)address, block);
}

/* Plain ---------------------------------------------------------------------------------------- */

HOOK hip_result hipMalloc(void **address, size_t size)
{
    struct charge charge;
    if (!address || !size || !hip_enter())
        return PASS(hipMalloc, (address, size));
    hip_result code = hip_begin(&charge, RUN_PLAIN, size, CALLER);
    if (!code) {
        code = PASS(hipMalloc, (address, size));
        hip_end(&charge, code, SPACE_ADDRESS, code ? NULL : *address, size);
    }
    shim_leave();
    return code;
}

HOOK hip_result hipExtMallocWithFlags(void **address, size_t size, unsigned flags)
{
    struct charge charge;
    if (!address || !size || !hip_enter())
        return PASS(hipExtMallocWithFlags, (address, size, flags));
    hip_result code = hip_begin(&charge, RUN_PLAIN, size, CALLER);
    if (!code) {
        code = PASS(hipExtMallocWithFlags, (address, size, flags));
        hip_end(&charge, code, SPACE_ADDRESS, code ? NULL : *address, size);
    }
    shim_leave();
    return code;
}

HOOK hip_result hipMallocPitch(void **address, size_t *pitch, size_t width, size_t height)
{
    struct charge charge;
    size_t least;
    if (!address || !pitch || __builtin_mul_overflow(width, height, &least) || !hip_enter())
        return PASS(hipMallocPitch, (address, pitch, width, height));
    hip_result code = hip_begin(&charge, RUN_PITCHED, least, CALLER);
    if (!code) {
        code = PASS(hipMallocPitch, (address, pitch, width, height));
        hip_end(&charge, code, SPACE_ADDRESS, code ? NULL : *address, code ? 0 : *pitch * height);
    }
    shim_leave();
    return code;
}

HOOK hip_result hipMemAllocPitch(void **address, size_t *pitch, size_t width, size_t height,
                                 unsigned element)
{
    struct charge charge;
    size_t least;
    if (!address || !pitch || __builtin_mul_overflow(width, height, &least) || !hip_enter())
        return PASS(hipMemAllocPitch, (address, pitch, width, height, element));
    hip_result code = hip_begin(&charge, RUN_PITCHED, least, CALLER);
    if (!code) {
        code = PASS(hipMemAllocPitch, (address, pitch, width, height, element));
        hip_end(&charge, code, SPACE_ADDRESS, code ? NULL : *address, code ? 0 : *pitch * height);
    }
    shim_leave();
    return code;
}

HOOK hip_result hipMalloc3D(struct hip_pitched *pitched, struct hip_extent extent)
{
    struct charge charge;
    size_t rows, least;
    if (!pitched || __builtin_mul_overflow(extent.height, extent.depth, &rows) ||
        __builtin_mul_overflow(extent.width, rows, &least) || !hip_enter())
        return PASS(hipMalloc3D, (pitched, extent));
    hip_result code = hip_begin(&charge, RUN_PITCHED, least, CALLER);
    if (!code) {
        code = PASS(hipMalloc3D, (pitched, extent));
        hip_end(&charge, code, SPACE_ADDRESS, code ? NULL : pitched->address,
                code ? 0 : pitched->pitch * rows);
    }
    shim_leave();
    return code;
}

HOOK hip_result hipMallocManaged(void **address, size_t size, unsigned flags)
{
    struct charge charge;
    if (!address || !size || !hip_enter())
        return PASS(hipMallocManaged, (address, size, flags));
    (void)hip_begin(&charge, RUN_MANAGED, size, CALLER); /* no limit refuses this kind */
    hip_result code = PASS(hipMallocManaged, (address, size, flags));
    hip_end(&charge, code, SPACE_ADDRESS, code ? NULL : *address, size);
    shim_leave();
    return code;
}

HOOK hip_result hipFree(void *address)
{
    struct block block;
    if (!address || !shim_enter())
        return PASS(hipFree, (address));
    bool known = take(address, &block);
    hip_result code = PASS(hipFree, (address));
    hip_freed(known, code, &block, NULL);
    shim_leave();
    return code;
}

/* In the order of streams ---------------------------------------------------------------------- */

static bool captures(hip_stream stream)
{
    hip_stream_capture_status status = HIP_CAPTURE_IS_NONE;
    return real.hipStreamIsCapturing && real.hipStreamIsCapturing(stream, &status) == HIP_OK &&
           status != HIP_CAPTURE_IS_NONE;
}

static void end_ordered(struct charge *charge, hip_result code, const void *address, size_t size,
                        hip_stream stream)
{
    if (!code && captures(stream))
        charge->block.kind = RUN_GRAPH;
    charge->stream = stream;
    charge->block.context = NULL;
    hip_end(charge, code, SPACE_ADDRESS, address, size);
}

HOOK hip_result hipMallocAsync(void **address, size_t size, hip_stream stream)
{
    struct charge charge;
    if (!address || !size || !hip_enter())
        return PASS(hipMallocAsync, (address, size, stream));
    hip_result code = hip_begin(&charge, RUN_ORDERED, size, CALLER);
    if (!code) {
        code = PASS(hipMallocAsync, (address, size, stream));
        end_ordered(&charge, code, code ? NULL : *address, size, stream);
    }
    shim_leave();
    return code;
}

HOOK hip_result hipMallocFromPoolAsync(void **address, size_t size, hip_pool pool,
                                       hip_stream stream)
{
    struct charge charge;
    struct block known;
    run_context context;
    if (!address || !size || !hip_enter())
        return PASS(hipMallocFromPoolAsync, (address, size, pool, stream));
    bool knows = blocks_find(SPACE_POOL, (uint64_t)(uintptr_t)pool, &known);
    hip_result code = hip_begin_on(&charge, knows ? known.kind : RUN_ORDERED,
                                   knows ? known.device : current_device(&context), size, CALLER);
    if (!code) {
        code = PASS(hipMallocFromPoolAsync, (address, size, pool, stream));
        end_ordered(&charge, code, code ? NULL : *address, size, stream);
    }
    shim_leave();
    return code;
}

/* A free that a capture records happens at each launch of the graph, so the block stays. */
HOOK hip_result hipFreeAsync(void *address, hip_stream stream)
{
    struct block block;
    if (!address || !shim_enter())
        return PASS(hipFreeAsync, (address, stream));
    bool known = !captures(stream) && take(address, &block);
    hip_result code = PASS(hipFreeAsync, (address, stream));
    hip_freed(known, code, &block, stream);
    shim_leave();
    return code;
}

static void know_pool(hip_pool pool, enum run_kind kind, int device)
{
    struct block block = {.key = (uint64_t)(uintptr_t)pool,
                          .space = SPACE_POOL,
                          .kind = (uint8_t)kind,
                          .references = 1};
    struct block old;
    if (device < 0 || (unsigned)device >= book->devices)
        return;
    block.device = (uint8_t)device;
    /* if it fails, blocks of the pool are charged to the current device */
    (void)blocks_put(&block, &old);
}

HOOK hip_result hipMemPoolCreate(hip_pool *pool, const struct hip_pool_properties *properties)
{
    if (!pool || !properties || !hip_enter())
        return PASS(hipMemPoolCreate, (pool, properties));
    hip_result code = PASS(hipMemPoolCreate, (pool, properties));
    bool of_device = properties->location.type == HIP_LOCATION_DEVICE;
    if (!code)
        know_pool(*pool, of_device ? RUN_ORDERED : RUN_HOST,
                  of_device ? properties->location.id : 0);
    shim_leave();
    return code;
}

HOOK hip_result hipDeviceGetDefaultMemPool(hip_pool *pool, int device)
{
    if (!pool || !hip_enter())
        return PASS(hipDeviceGetDefaultMemPool, (pool, device));
    hip_result code = PASS(hipDeviceGetDefaultMemPool, (pool, device));
    if (!code)
        know_pool(*pool, RUN_ORDERED, device);
    shim_leave();
    return code;
}

HOOK hip_result hipMemPoolDestroy(hip_pool pool)
{
    struct block block, old;
    if (!shim_enter())
        return PASS(hipMemPoolDestroy, (pool));
    bool known = blocks_take(SPACE_POOL, (uint64_t)(uintptr_t)pool, &block);
    hip_result code = PASS(hipMemPoolDestroy, (pool));
    if (known && code)
        (void)blocks_put(&block, &old);
    shim_leave();
    return code;
}

/* Of the host, and of other processes ---------------------------------------------------------- */

HOOK hip_result hipHostMalloc(void **memory, size_t size, unsigned flags)
{
    struct charge charge;
    if (!memory || !size || !hip_enter())
        return PASS(hipHostMalloc, (memory, size, flags));
    (void)hip_begin(&charge, RUN_HOST, size, CALLER);
    hip_result code = PASS(hipHostMalloc, (memory, size, flags));
    hip_end(&charge, code, SPACE_ADDRESS, code ? NULL : *memory, size);
    shim_leave();
    return code;
}

HOOK hip_result hipHostAlloc(void **memory, size_t size, unsigned flags)
{
    struct charge charge;
    if (!memory || !size || !hip_enter())
        return PASS(hipHostAlloc, (memory, size, flags));
    (void)hip_begin(&charge, RUN_HOST, size, CALLER);
    hip_result code = PASS(hipHostAlloc, (memory, size, flags));
    hip_end(&charge, code, SPACE_ADDRESS, code ? NULL : *memory, size);
    shim_leave();
    return code;
}

HOOK hip_result hipMallocHost(void **memory, size_t size)
{
    struct charge charge;
    if (!memory || !size || !hip_enter())
        return PASS(hipMallocHost, (memory, size));
    (void)hip_begin(&charge, RUN_HOST, size, CALLER);
    hip_result code = PASS(hipMallocHost, (memory, size));
    hip_end(&charge, code, SPACE_ADDRESS, code ? NULL : *memory, size);
    shim_leave();
    return code;
}

HOOK hip_result hipMemAllocHost(void **memory, size_t size)
{
    struct charge charge;
    if (!memory || !size || !hip_enter())
        return PASS(hipMemAllocHost, (memory, size));
    (void)hip_begin(&charge, RUN_HOST, size, CALLER);
    hip_result code = PASS(hipMemAllocHost, (memory, size));
    hip_end(&charge, code, SPACE_ADDRESS, code ? NULL : *memory, size);
    shim_leave();
    return code;
}

HOOK hip_result hipHostFree(void *memory)
{
    struct block block;
    if (!memory || !shim_enter())
        return PASS(hipHostFree, (memory));
    bool known = take(memory, &block);
    hip_result code = PASS(hipHostFree, (memory));
    hip_freed(known, code, &block, NULL);
    shim_leave();
    return code;
}

HOOK hip_result hipFreeHost(void *memory)
{
    struct block block;
    if (!memory || !shim_enter())
        return PASS(hipFreeHost, (memory));
    bool known = take(memory, &block);
    hip_result code = PASS(hipFreeHost, (memory));
    hip_freed(known, code, &block, NULL);
    shim_leave();
    return code;
}

HOOK hip_result hipHostRegister(void *memory, size_t size, unsigned flags)
{
    struct charge charge;
    if (!memory || !size || !hip_enter())
        return PASS(hipHostRegister, (memory, size, flags));
    (void)hip_begin(&charge, RUN_REGISTERED, size, CALLER);
    hip_result code = PASS(hipHostRegister, (memory, size, flags));
    hip_end(&charge, code, SPACE_REGISTERED, code ? NULL : memory, size);
    shim_leave();
    return code;
}

HOOK hip_result hipHostUnregister(void *memory)
{
    struct block block;
    if (!shim_enter())
        return PASS(hipHostUnregister, (memory));
    bool known = blocks_take(SPACE_REGISTERED, (uint64_t)(uintptr_t)memory, &block);
    hip_result code = PASS(hipHostUnregister, (memory));
    hip_freed(known, code, &block, NULL);
    shim_leave();
    return code;
}

HOOK hip_result hipIpcOpenMemHandle(void **address, struct hip_ipc handle, unsigned flags)
{
    struct charge charge;
    void *base;
    size_t size = 0;
    if (!address || !hip_enter())
        return PASS(hipIpcOpenMemHandle, (address, handle, flags));
    hip_result code = PASS(hipIpcOpenMemHandle, (address, handle, flags));
    if (!code &&
        (!real.hipMemGetAddressRange || !real.hipMemGetAddressRange(&base, &size, *address))) {
        (void)hip_begin(&charge, RUN_IMPORTED, size, CALLER);
        hip_end(&charge, HIP_OK, SPACE_ADDRESS, *address, size);
    }
    shim_leave();
    return code;
}

HOOK hip_result hipIpcCloseMemHandle(void *address)
{
    struct block block;
    if (!shim_enter())
        return PASS(hipIpcCloseMemHandle, (address));
    bool known = take(address, &block);
    hip_result code = PASS(hipIpcCloseMemHandle, (address));
    hip_freed(known, code, &block, NULL);
    shim_leave();
    return code;
}
