/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Replaces PyTorch's own allocator. Called by python/src/tarn/torch/__init__.py through ctypes. */
#include "allocator.h"

#include <c10/cuda/CUDAFunctions.h>

#include <cstdio>

using namespace tarn_torch;

extern "C" {

/* The version of PyTorch that this file was compiled for: 2011 is 2.11. */
__attribute__((visibility("default"))) int tarn_torch_version(void)
{
    return TARN_TORCH_VERSION;
}

/* tarn's id of a PyTorch pool. Returns 1 if there is none. */
__attribute__((visibility("default"))) int tarn_torch_pool(int device, uint64_t first,
                                                           uint64_t second, uint64_t *ours_first,
                                                           uint64_t *ours_second)
{
    tarn_pool_id id = {};
    if (!the_allocator().find_pool(static_cast<DeviceIndex>(device), {first, second}, &id))
        return 1;
    *ours_first = id.first;
    *ours_second = id.second;
    return 0;
}

/* Makes a pool registrable. Returns 0, or 1 with the reason in `text`. */
__attribute__((visibility("default"))) int
tarn_torch_registrable(int device, uint64_t first, uint64_t second, char *text, size_t size)
{
    const char *why =
        the_allocator().make_registrable(static_cast<DeviceIndex>(device), {first, second});
    std::snprintf(text, size, "%s", why ? why : "");
    return why != nullptr;
}

/* Ends what failed captures have left: their memory and their pools. */
__attribute__((visibility("default"))) void tarn_torch_settle(void)
{
    the_allocator().settle();
}

/* True if PyTorch's allocator is this one. Another one can take its place until CUDA is
 * initialised. */
__attribute__((visibility("default"))) bool tarn_torch_is_installed(void)
{
    return c10::cuda::CUDACachingAllocator::allocator.load() == &the_allocator();
}

/* Undoes tarn_torch_install(). Nothing may have been allocated since. */
__attribute__((visibility("default"))) void tarn_torch_uninstall(void)
{
    CUDAAllocator *before = the_allocator().previous;
    c10::cuda::CUDACachingAllocator::allocator.store(before);
    c10::SetAllocator(c10::DeviceType::CUDA, before, 255);
}

/* Installs the allocator. Returns 0, or 1 with the reason in `text`. `late`: also if PyTorch has
 * already used its own allocator, which then frees what it allocated. */
__attribute__((visibility("default"))) int tarn_torch_install(bool late, char *text, size_t size)
{
    try {
        CUDAAllocator *before = c10::cuda::CUDACachingAllocator::allocator.load();
        Allocator &ours = the_allocator();
        if (before == &ours)
            return 0;
        std::string name = before ? before->name() : "none";
        if (name != "native") {
            std::snprintf(text, size,
                          "PyTorch's allocator is \"%s\" and not its own: another library has "
                          "replaced it, or "
                          "PYTORCH_CUDA_ALLOC_CONF names a backend",
                          name.c_str());
            return 1;
        }
        bool is_late = before->initialized();
        if (is_late && !late) {
            std::snprintf(text, size,
                          "CUDA is initialised in PyTorch already. Enable tarn before the first "
                          "use of the device: "
                          "before .cuda(), "
                          "and before imports that use it; or pass late=True, which leaves what is "
                          "allocated to "
                          "PyTorch's allocator");
            return 1;
        }
        ours.previous = before;
        if (is_late) {
#if TARN_TORCH_VERSION >= 2008
            before->emptyCache({0, 0});
#else
            before->emptyCache();
#endif
            ours.init(c10::cuda::device_count());
        }
        c10::cuda::CUDACachingAllocator::allocator.store(&ours);
        c10::SetAllocator(c10::DeviceType::CUDA, &ours, 255); /* torch.accelerator uses this one */
        return 0;
    } catch (const std::exception &error) {
        std::snprintf(text, size, "%s", error.what());
        return 1;
    }
}
}
