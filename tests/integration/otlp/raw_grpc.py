"""A server that speaks HTTP/2 by its frames (RFC 9113), so that it can break the rules of gRPC as no library lets it."""
import gzip
import socket
import struct
import threading

from formats import otlp

DATA, HEADERS, RST_STREAM, SETTINGS, PING, GOAWAY, WINDOW_UPDATE = 0, 1, 3, 4, 6, 7, 8
ACK, END_STREAM, END_HEADERS = 1, 1, 4
STATUS_200 = b"\x88"  # of HPACK's static table
INTERNAL_ERROR, REFUSED_STREAM = 2, 7


def header(name, value):
    return b"\x00" + bytes([len(name)]) + name + bytes([len(value)]) + value


KIND = header(b"content-type", b"application/grpc+proto")
DONE = header(b"grpc-status", b"0")


class RawGrpcReceiver:
    """`script`: for each request "no trailers", "no status", "garbage", "cut message", "reset", "refused", "goaway", "half", "no http2". Then
    all is taken."""
    scheme = "grpc"

    def __init__(self, script):
        self.script, self.seen, self.taken = list(script), [], []
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.serve, daemon=True).start()

    def url(self):
        return f"grpc://127.0.0.1:{self.port}"

    def close(self):
        self.listener.close()

    def serve(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self.talk, args=(client,), daemon=True).start()

    def talk(self, client):
        try:
            with client, client.makefile("rb") as stream:
                self.requests(client, stream)
        except (OSError, struct.error):
            pass

    def requests(self, client, stream):
        def send(kind, flags, number, payload=b""):
            client.sendall(struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", number) + payload)

        stream.read(24)  # the client's preface
        if self.script and self.script[0] == "no http2":
            self.seen.append(self.script.pop(0))
            client.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
            return
        send(SETTINGS, 0, 0)
        send(WINDOW_UPDATE, 0, 0, struct.pack(">I", 1 << 28))
        bodies = {}
        while True:
            head = stream.read(9)
            if len(head) < 9:
                return
            length, kind, flags, number = int.from_bytes(head[:3], "big"), head[3], head[4], struct.unpack(">I", head[5:])[0]
            payload = stream.read(length)
            if kind == SETTINGS and not flags & ACK:
                send(SETTINGS, ACK, 0)
            elif kind == PING and not flags & ACK:
                send(PING, ACK, 0, payload)
            elif kind == HEADERS:
                bodies[number] = b""
                send(WINDOW_UPDATE, 0, number, struct.pack(">I", 1 << 28))
            elif kind == DATA:
                bodies[number] += payload
                if flags & END_STREAM and not self.answer(send, number, bodies.pop(number)):
                    return

    def answer(self, send, number, body):
        """False: the connection ends."""
        act = self.script.pop(0) if self.script else "ok"
        self.seen.append(act)
        compressed, size = body[0], struct.unpack(">I", body[1:5])[0]
        assert size == len(body) - 5
        request = otlp.Request.FromString(gzip.decompress(body[5:]) if compressed else body[5:])
        if act == "reset" or act == "refused":
            send(RST_STREAM, 0, number, struct.pack(">I", INTERNAL_ERROR if act == "reset" else REFUSED_STREAM))
            return True
        if act == "goaway":
            send(GOAWAY, 0, 0, struct.pack(">II", 0, INTERNAL_ERROR))
            return False
        send(HEADERS, END_HEADERS, number, STATUS_200 + KIND)
        if act == "half":
            return False
        message = {"garbage": b"\0\0\0\0\3\x0a\xff\xff", "cut message": b"\0\0\0\1\0ab"}.get(act, b"\0\0\0\0\0")
        if act == "no trailers":
            send(DATA, END_STREAM, number, message)
            return True
        send(DATA, 0, number, message)
        send(HEADERS, END_HEADERS | END_STREAM, number, header(b"x-else", b"1") if act == "no status" else DONE)
        if act == "ok":
            self.taken.append(request)
        return True
