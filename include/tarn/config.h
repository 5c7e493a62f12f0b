/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Settings of the memory layer, with the syntax and the keys of PyTorch's PYTORCH_CUDA_ALLOC_CONF:
 * "max_split_size_mb:64,roundup_power2_divisions:[256:2,>:4]". docs/configuration.md lists the
 * keys, and those that have no effect here.
 *
 * TARN_ALLOC_CONF is read at the first call that needs a setting, which may be one of these. If it
 * is malformed, that call and all later ones fail with TARN_ERROR_CONFIGURATION and a text that
 * names the column; no call here repairs that. TARN_ALLOC_CONF=pytorch means that PyTorch's own
 * variables are read instead; tarn ignores them otherwise. To know which of them apply, the first
 * call then chooses the driver.
 *
 * All functions are thread-safe and may be called during a capture. Every function may also return
 * TARN_ERROR_FORKED, TARN_ERROR_SHUTDOWN, TARN_ERROR_CONFIGURATION, TARN_ERROR_NO_DRIVER,
 * TARN_ERROR_DRIVER and TARN_ERROR_OUT_OF_HOST_MEMORY. */
#ifndef TARN_CONFIG_H
#define TARN_CONFIG_H

#include <stddef.h>
#include <tarn/core.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes the settings that `text` names, for requests of the whole process from now on. Memory
 * that is reserved already stays as it is. The call may be made at any time. As in PyTorch,
 * max_split_size_mb, max_non_split_rounding_mb, garbage_collection_threshold and
 * roundup_power2_divisions return to their defaults if `text` does not name them, so "" resets
 * these four; all other settings stay. A leading "all:default" resets every setting. backend,
 * segments and plan cannot be changed any more once memory is used, only repeated. On failure
 * nothing is changed.
 *   TARN_ERROR_CONFIGURATION      `text` is malformed, has an unknown key or a value out of range,
 *                                 or changes a setting that is fixed; the text of the error names
 *                                 the column
 *   TARN_ERROR_INVALID_ARGUMENT   `text` is NULL
 *   TARN_ERROR_OUT_OF_HOST_MEMORY */
TARN_API tarn_status tarn_configuration_set(const char *text);

/* Writes the settings in force into `buffer`, which has `size` bytes. Passing the text to
 * tarn_configuration_set() later brings exactly these settings back. `needed` (may be NULL)
 * receives the bytes needed with the final 0, even if the buffer is too small. With a NULL buffer
 * and size 0, the call only fills `needed`.
 *   TARN_ERROR_INVALID_ARGUMENT   the buffer is too small, and is left as it was */
TARN_API tarn_status tarn_configuration_get(char *buffer, size_t size, size_t *needed);

/* Returns one of the settings that are not at their default but have no effect in tarn, by index
 * from 0. The text is "key: reason". Past the last one, `text` receives NULL and the status is
 * TARN_OK. The strings are constant.
 *   TARN_ERROR_INVALID_ARGUMENT   the index is negative, or `text` is NULL */
TARN_API tarn_status tarn_configuration_note_get(int index, const char **text);

#ifdef __cplusplus
}
#endif
#endif
