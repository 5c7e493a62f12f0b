// SPDX-License-Identifier: MIT
// Copyright (c) 2026 The tarn authors
//
// Reads a pickle of plain data: dicts, lists, tuples, numbers and texts, of protocols 2 to 5. Nothing in it is executed: an opcode that
// would import, call or build an object is refused, with its place. Opcodes: python/cpython, Lib/pickletools.py. No well-kept
// library does this in a browser; pickle.c is the same for the program.

// A dict: its keys come from a file that nobody vouches for, so "__proto__" must be a key as any other.
function PlainDict() {}
PlainDict.prototype = Object.create(null);

const PICKLE_MARK = Symbol("mark");
const REFUSED = {c: "GLOBAL", i: "INST", o: "OBJ", R: "REDUCE", b: "BUILD", P: "PERSID", Q: "BINPERSID", "\x81": "NEWOBJ", "\x82": "EXT1",
    "\x83": "EXT2", "\x84": "EXT4", "\x92": "NEWOBJ_EX", "\x93": "STACK_GLOBAL", "\x97": "NEXT_BUFFER", "\x98": "READONLY_BUFFER"};

class PickleReader {
    constructor(buffer) {
        this.bytes = new Uint8Array(buffer);
        this.view = new DataView(buffer);
        this.texts = new TextDecoder();
        this.at = 0;
    }

    fail(what, at = this.at) {
        throw new Error("byte " + at + ": " + what);
    }

    // Moves on by so many bytes, and gives where they begin.
    skip(count) {
        const from = this.at;
        if (!(count >= 0) || from + count > this.bytes.length)
            this.fail("the pickle ends in the middle");
        this.at += count;
        return from;
    }

    line() {
        const end = this.bytes.indexOf(10, this.at);
        if (end < 0)
            this.fail("the pickle ends in the middle");
        return this.text(this.skip(end + 1 - this.at), end);
    }

    text(from, end) {
        return this.texts.decode(this.bytes.subarray(from, end));
    }

    sized(length) {
        const from = this.skip(length);
        return this.text(from, from + length);
    }

    wide(from) {
        return Number(this.view.getBigUint64(from, true));
    }

    // A number of two's complement, the lowest byte first.
    long(length) {
        const from = this.skip(length);
        let value = 0n;
        for (let i = length; i-- > 0;)
            value = value << 8n | BigInt(this.bytes[from + i]);
        return Number(length && this.bytes[from + length - 1] & 128 ? value - (1n << BigInt(8 * length)) : value);
    }

    // What lies on the stack above the last mark, which goes with it.
    toMark(stack) {
        const mark = stack.lastIndexOf(PICKLE_MARK);
        if (mark < 0)
            this.fail("an opcode needs a mark, and there is none");
        const items = stack.splice(mark);
        items.shift();
        return items;
    }

    put(dict, items) {
        if (!(dict instanceof PlainDict) || items.length % 2)
            this.fail("SETITEMS needs a dict");
        for (let i = 0; i < items.length; i += 2)
            if (typeof items[i] !== "object") // others name nothing in a snapshot
                dict[items[i]] = items[i + 1];
        return dict;
    }

    add(list, items) {
        if (!Array.isArray(list))
            this.fail("APPENDS needs a list");
        for (const item of items)
            list.push(item);
        return list;
    }

    // The value of the pickle.
    *read() {
        const {bytes, view} = this, stack = [], memo = new Map(), length = bytes.length;
        const pop = () => {
            if (!stack.length || stack[stack.length - 1] === PICKLE_MARK)
                this.fail("an opcode finds an empty stack");
            return stack.pop();
        };
        const top = () => {
            if (!stack.length || stack[stack.length - 1] === PICKLE_MARK)
                this.fail("an opcode finds an empty stack");
            return stack[stack.length - 1];
        };
        const get = key => {
            if (!memo.has(key))
                this.fail("there is no memo " + key);
            stack.push(memo.get(key));
        };
        if (length < 2 || bytes[0] !== 0x80)
            this.fail("this is not a pickle of protocol 2 or later", 0);
        for (let steps = 1; this.at < length; steps++) {
            if (steps % 65536 === 0)
                yield;
            const op = bytes[this.at++];
            switch (op) {
            case 0x80:
                if (bytes[this.skip(1)] > 5)
                    this.fail("its protocol is later than 5");
                break;
            case 0x95: this.skip(8); break; // FRAME
            case 0x28: stack.push(PICKLE_MARK); break; // (
            case 0x7d: stack.push(new PlainDict()); break; // }
            case 0x5d: stack.push([]); break; // ]
            case 0x29: stack.push([]); break; // )
            case 0x4e: stack.push(null); break; // N
            case 0x88: stack.push(true); break;
            case 0x89: stack.push(false); break;
            case 0x4b: stack.push(bytes[this.skip(1)]); break; // K
            case 0x4d: stack.push(view.getUint16(this.skip(2), true)); break; // M
            case 0x4a: stack.push(view.getInt32(this.skip(4), true)); break; // J
            case 0x8a: stack.push(this.long(bytes[this.skip(1)])); break;
            case 0x8b: stack.push(this.long(view.getInt32(this.skip(4), true))); break;
            case 0x47: stack.push(view.getFloat64(this.skip(8))); break; // G
            case 0x49: case 0x4c: { // I, L
                const text = this.line();
                stack.push(op === 0x49 && text === "01" ? true : op === 0x49 && text === "00" ? false : parseInt(text, 10));
                break;
            }
            case 0x46: stack.push(parseFloat(this.line())); break; // F
            case 0x8c: stack.push(this.sized(bytes[this.skip(1)])); break;
            case 0x58: case 0x54: case 0x42: stack.push(this.sized(view.getUint32(this.skip(4), true))); break; // X, T, B
            case 0x8d: case 0x8e: case 0x96: stack.push(this.sized(this.wide(this.skip(8)))); break;
            case 0x55: case 0x43: stack.push(this.sized(bytes[this.skip(1)])); break; // U, C
            case 0x56: stack.push(this.line()); break; // V
            case 0x53: stack.push(this.line().slice(1, -1)); break; // S
            case 0x94: memo.set(memo.size, top()); break; // MEMOIZE
            case 0x71: memo.set(bytes[this.skip(1)], top()); break; // q
            case 0x72: memo.set(view.getUint32(this.skip(4), true), top()); break; // r
            case 0x70: memo.set(parseInt(this.line(), 10), top()); break; // p
            case 0x68: get(bytes[this.skip(1)]); break; // h
            case 0x6a: get(view.getUint32(this.skip(4), true)); break; // j
            case 0x67: get(parseInt(this.line(), 10)); break; // g
            case 0x61: { // a
                const item = pop();
                this.add(top(), [item]);
                break;
            }
            case 0x65: { // e
                const items = this.toMark(stack);
                this.add(top(), items);
                break;
            }
            case 0x73: { // s
                const value = pop(), key = pop();
                this.put(top(), [key, value]);
                break;
            }
            case 0x75: { // u
                const items = this.toMark(stack);
                this.put(top(), items);
                break;
            }
            case 0x64: stack.push(this.put(new PlainDict(), this.toMark(stack))); break; // d
            case 0x6c: case 0x74: stack.push(this.toMark(stack)); break; // l, t
            case 0x85: stack.push([pop()]); break;
            case 0x86: { const b = pop(); stack.push([pop(), b]); break; }
            case 0x87: { const c = pop(), b = pop(); stack.push([pop(), b, c]); break; }
            case 0x30: pop(); break; // 0
            case 0x31: this.toMark(stack); break; // 1
            case 0x32: stack.push(top()); break; // 2
            case 0x2e: return pop(); // .
            default: {
                const name = REFUSED[String.fromCharCode(op)];
                this.fail(name ? "the opcode " + name + " would run code, which no snapshot needs" : "0x" + op.toString(16) + " is not an opcode", this.at - 1);
            }
            }
        }
        return this.fail("the pickle has no end");
    }
}
