"""Numbers as DWARF, protocol buffers and ClickHouse write them: seven bits a byte, the low ones first."""


def uleb128(number):
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
