/* SPDX-License-Identifier: MIT */
/* Copyright (c) 2026 The tarn authors */

/* Owns the page of `tarn report` around its data (report_data.h), which it contains deflated and in
 * base64.
 *
 * Texts come from untrusted files and paths. Texts of files are within the data, which have no "<";
 * all others are escaped as HTML here. */
#include "analysis/report/report_page.h"

#include "analysis/report/report.h"
#include "analysis/report/report_data.h"
#include "base/utf8.h"
#include "name.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define PART ((size_t)48 << 10) /* bytes, a multiple of three: only the last is padded */

/* Bytes that are not UTF-8 become '?'. */
static void put_html(FILE *out, const char *text)
{
    while (*text) {
        unsigned length = utf8_length((const unsigned char *)text);
        if (*text == '<' || *text == '&')
            fputs(*text == '<' ? "&lt;" : "&amp;", out);
        else
            fwrite(length ? text : "?", 1, length ? length : 1, out);
        text += length ? length : 1;
    }
}

/* --- data --- */

static void put_base64(FILE *out, const unsigned char *bytes, size_t size)
{
    static const char letters[] =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    for (size_t i = 0; i < size; i += 3) {
        unsigned group = (unsigned)bytes[i] << 16;
        group |= i + 1 < size ? (unsigned)bytes[i + 1] << 8 : 0;
        group |= i + 2 < size ? bytes[i + 2] : 0;
        char text[4] = {letters[group >> 18], letters[group >> 12 & 63],
                        i + 1 < size ? letters[group >> 6 & 63] : '=',
                        i + 2 < size ? letters[group & 63] : '='};
        fwrite(text, 1, sizeof text, out);
    }
}

/* Deflates (RFC 1950) what it is given, and writes it in base64. */
struct packer {
    FILE *out;
    z_stream stream;
    unsigned char part[PART];
};

static bool pack(struct packer *packer, const void *data, size_t size, int flush)
{
    packer->stream.next_in = (Bytef *)(uintptr_t)data;
    packer->stream.avail_in = (uInt)size;
    int status;
    do {
        status = deflate(&packer->stream, flush);
        bool full = !packer->stream.avail_out;
        if (full || flush == Z_FINISH) {
            put_base64(packer->out, packer->part, PART - packer->stream.avail_out);
            packer->stream.next_out = packer->part;
            packer->stream.avail_out = PART;
        }
        if (!full)
            break;
    } while (status == Z_OK);
    return (status == Z_OK || status == Z_STREAM_END || status == Z_BUF_ERROR) &&
           !ferror(packer->out);
}

static ssize_t pack_write(void *cookie, const char *data, size_t size)
{
    size_t part = size < UINT32_MAX ? size : UINT32_MAX;
    return pack(cookie, data, part, Z_NO_FLUSH) ? (ssize_t)part : 0;
}

static bool put_data(FILE *out, const struct report_file *files, size_t count)
{
    struct packer *packer = calloc(1, sizeof *packer);
    bool begun = packer && deflateInit(&packer->stream, Z_DEFAULT_COMPRESSION) == Z_OK;
    FILE *in =
        begun ? fopencookie(packer, "w", (cookie_io_functions_t){.write = pack_write}) : NULL;
    bool done = in;
    if (done) {
        packer->out = out;
        packer->stream.next_out = packer->part;
        packer->stream.avail_out = PART;
        fputs("<script type=\"text/plain\" id=\"data\">", out);
        done = report_data_write(in, files, count);
    }
    if (in)
        done = fclose(in) == 0 && done && pack(packer, "", 0, Z_FINISH);
    fputs("</script>\n", out);
    if (begun)
        deflateEnd(&packer->stream);
    free(packer);
    return done;
}

/* --- the page --- */

static void put_title(FILE *out, const struct report_file *files, size_t count)
{
    put_html(out, count ? name_shown(files[0].name).text : "tarn report");
    if (count == 2) {
        fputs(" and ", out);
        put_html(out, name_shown(files[1].name).text);
    } else if (count > 2) {
        fprintf(out, " and %zu more", count - 1);
    }
}

bool report_page_exists(void)
{
    return report_page[0] != 0;
}

bool report_viewer_exists(void)
{
    return report_page_exists() && report_page_reads;
}

bool report_page_write(FILE *out, const struct report_file *files, size_t count,
                       const char *made_by)
{
    enum { TITLE, MADE, DATA, MARKS };
    static const char *const marks[MARKS] = {
        [TITLE] = "<!--TITLE-->", [MADE] = "<!--MADE-->", [DATA] = "<!--DATA-->"};
    bool done = true;
    const char *at = (const char *)report_page;
    for (const char *mark; (mark = strstr(at, "<!--")) && done;) {
        int kind = 0;
        while (kind < MARKS && strncmp(mark, marks[kind], strlen(marks[kind])) != 0)
            kind++;
        fwrite(at, 1, (size_t)(mark - at), out);
        at = mark + (kind < MARKS ? strlen(marks[kind]) : 0);
        if (kind == TITLE)
            put_title(out, files, count);
        else if (kind == MADE)
            put_html(out, made_by);
        else if (kind == DATA && count)
            done = put_data(out, files, count);
        else if (kind == MARKS)
            at += fwrite(at, 1, 4, out);
    }
    fputs(at, out);
    return done && !ferror(out);
}
