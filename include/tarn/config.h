/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Settings of the memory layer, in the language of PyTorch's PYTORCH_CUDA_ALLOC_CONF and with its keys:
 * "max_split_size_mb:64,roundup_power2_divisions:[256:2,>:4]". docs/configuration.md lists the keys, and which have no
 * effect here. TARN_ALLOC_CONF is read at the first call that needs a setting, any of these too; if it is malformed that
 * call and all later ones fail with TARN_ERROR_CONFIGURATION and a text that names the column.
 *
 * All functions are thread-safe and may be called during a capture; each may also return TARN_ERROR_FORKED,
 * TARN_ERROR_SHUTDOWN and TARN_ERROR_CONFIGURATION, and with TARN_ALLOC_CONF=pytorch what the choice of a driver gives. */
#ifndef TARN_CONFIG_H
#define TARN_CONFIG_H

#include <stddef.h>
#include <tarn/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Changes the settings that `text` names, at any time and for the whole process. As in PyTorch, max_split_size_mb,
 * max_non_split_rounding_mb, garbage_collection_threshold and roundup_power2_divisions go back to their defaults if it
 * does not name them; all other settings stay. "all:default" at the beginning puts every setting back.
 * TARN_ERROR_CONFIGURATION, and nothing is changed, for what cannot be read, is out of range, or counts only until memory
 * is first used; the text names the column. TARN_ERROR_INVALID_ARGUMENT for NULL; TARN_ERROR_OUT_OF_HOST_MEMORY. */
TARN_API tarn_status tarn_configuration_set(const char *text);

/* Writes the settings in force into `buffer`, of `size` bytes, as a text that tarn_configuration_set() makes the same settings
 * of. `needed`, which may be NULL, receives the bytes that this takes with the 0 at the end, also where it fails for want of
 * room: TARN_ERROR_INVALID_ARGUMENT, and the buffer is left as it was. Without a buffer (NULL and 0) it only receives
 * `needed`. */
TARN_API tarn_status tarn_configuration_get(char *buffer, size_t size, size_t *needed);

/* The settings in force that were changed and have no effect here, one by one from index 0: "key: why not". NULL, with
 * TARN_OK, for an index past the last. The strings are constant. TARN_ERROR_INVALID_ARGUMENT for an index below 0 or where
 * `text` is NULL. */
TARN_API tarn_status tarn_configuration_note_get(int index, const char **text);

#ifdef __cplusplus
}
#endif
#endif
