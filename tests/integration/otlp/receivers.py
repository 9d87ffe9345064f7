"""Servers of OTLP profiles that behave as they are told: by HTTP (http.server) and by gRPC (python3-grpcio)."""
import concurrent.futures
import gzip
import http.server
import socket
import ssl
import subprocess
import threading
import time

import grpc

from formats import otlp

PATH = "/v1development/profiles"
SERVICE = "opentelemetry.proto.collector.profiles.v1development.ProfilesService"


def unpacked(body, encoding):
    if encoding == "gzip":
        return gzip.decompress(body)
    if encoding == "zstd":
        return subprocess.run(["zstd", "-dc"], input=body, stdout=subprocess.PIPE, check=True).stdout
    assert encoding is None, encoding
    return body


class Receiver:
    """`script`: what to do with each request, by turns: "ok", ("status", CODE, HEADERS), ("slow", SECONDS), "close" (the batch was
    read), "cut" (the connection ends in the middle of the batch), ("bytes", BODY), ("reject", COUNT, WHY). Then "ok"."""

    def __init__(self, script=()):
        self.script, self.lock = list(script), threading.Lock()
        self.seen, self.taken, self.headers = [], [], []

    def next_act(self):
        with self.lock:
            return self.script.pop(0) if self.script else "ok"

    def keep(self, request, taken):
        with self.lock:
            self.seen.append(request)
            if taken:
                self.taken.append(request)

    def url(self):
        return f"{self.scheme}://127.0.0.1:{self.port}"


class HttpReceiver(Receiver):
    """`limit`: bytes of a request, as unpacked. A larger one is answered 413."""

    def __init__(self, script=(), port=0, tls=None, limit=None):
        super().__init__(script)
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def answer(self, status, headers=(), body=b"", kind="application/x-protobuf"):
                self.send_response(status)
                for key, value in dict(headers).items():
                    self.send_header(key, value)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_POST(self):
                act = receiver.next_act()
                length = int(self.headers["Content-Length"])
                if act == "cut":
                    self.rfile.read(min(length, 100))
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                    return
                body = unpacked(self.rfile.read(length), self.headers.get("Content-Encoding"))
                if limit and len(body) > limit:
                    receiver.keep(otlp.Request(), False)
                    self.answer(413)
                    return
                request = otlp.Request.FromString(body)
                receiver.headers.append((self.path, dict(self.headers), len(body)))
                taken = act in ("ok", "close") or act[0] in ("reject", "slow")
                receiver.keep(request, taken)
                if act == "close":
                    self.connection.shutdown(socket.SHUT_RDWR)
                    self.close_connection = True
                elif act == "ok":
                    self.answer(200)
                elif act[0] == "status":
                    status = otlp.Status(message="not now")
                    self.answer(act[1], act[2], status.SerializeToString())
                elif act[0] == "bytes":
                    self.answer(200, (), act[1], "text/html")
                elif act[0] == "slow":
                    time.sleep(act[1])
                    self.answer(200)
                elif act[0] == "reject":
                    partial = otlp.PartialSuccess(rejected_profiles=act[1], error_message=act[2])
                    self.answer(200, (), otlp.Response(partial_success=partial).SerializeToString())

            def handle(self):
                try:
                    super().handle()
                except (ConnectionError, ssl.SSLError, TimeoutError):
                    pass

        class Server(http.server.ThreadingHTTPServer):
            def handle_error(self, *_):
                pass

        self.server = Server(("127.0.0.1", port), Handler)
        self.server.daemon_threads = True
        self.scheme, self.port = "http", self.server.server_address[1]
        if tls:
            self.scheme = "https"
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(tls["server.pem"], tls["server.key"])
            context.load_verify_locations(tls["ca.pem"])
            context.verify_mode = ssl.CERT_REQUIRED
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class GrpcReceiver(Receiver):
    """`limit`: bytes of a request. grpcio answers a larger one RESOURCE_EXHAUSTED."""

    def __init__(self, script=(), port=0, tls=None, limit=-1):
        super().__init__(script)
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(4),
                                  options=[("grpc.so_reuseport", 0), ("grpc.max_receive_message_length", limit)])
        handler = grpc.unary_unary_rpc_method_handler(self.export, request_deserializer=otlp.Request.FromString,
                                                      response_serializer=otlp.Response.SerializeToString)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, {"Export": handler}),))
        address, self.scheme = f"127.0.0.1:{port}", "grpc"
        if tls:
            self.scheme = "grpcs"
            read = {name: open(path, "rb").read() for name, path in tls.items()}
            credentials = grpc.ssl_server_credentials([(read["server.key"], read["server.pem"])], read["ca.pem"], True)
            self.port = self.server.add_secure_port(address, credentials)
        else:
            self.port = self.server.add_insecure_port(address)
        self.server.start()

    def export(self, request, context):
        act = self.next_act()
        self.headers.append((SERVICE, dict(context.invocation_metadata()), request.ByteSize()))
        self.keep(request, act == "ok" or act[0] in ("reject", "slow"))
        if act == "ok":
            return otlp.Response()
        if act[0] == "status":
            code, retry = act[1], act[2]
            if retry is not None:
                info = otlp.RetryInfo(retry_delay=otlp.Duration(seconds=int(retry), nanos=int(retry % 1 * 1e9)))
                any_of = otlp.Any(type_url="type.googleapis.com/google.rpc.RetryInfo", value=info.SerializeToString())
                status = otlp.Status(code=code.value[0], message="not now", details=[any_of])
                context.set_trailing_metadata((("grpc-status-details-bin", status.SerializeToString()),))
            context.abort(code, "not now")
        if act[0] == "slow":
            time.sleep(act[1])
            return otlp.Response()
        partial = otlp.PartialSuccess(rejected_profiles=act[1], error_message=act[2])
        return otlp.Response(partial_success=partial)

    def close(self):
        self.server.stop(None).wait()
