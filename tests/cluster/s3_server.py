#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""An S3 server for tests. moto checks signatures and policies. A proxy in front checks bodies and injects faults.

Prints one line of JSON (addresses and keys), then serves until its standard input ends. So it never outlives the
test that started it. The proxy listens on several ports: `plain` forwards everything, `faulty` spoils some requests,
and `tls` is encrypted.
"""
import argparse
import datetime
import hashlib
import http.client
import ipaddress
import json
import logging
import random
import socket
import ssl
import sys
import threading
import time
import urllib.request
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import boto3
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from moto.server import ThreadedMotoServer

BUCKET = "training"
FAULTS = ("error_500", "error_503", "cut_request", "cut_reply", "lost_reply", "stall")
STALL_SECONDS = 6.0
POLICY = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
READ_ONLY = {"Version": "2012-10-17",
             "Statement": [{"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": "*"}]}


class FaultPlan:
    """A sequence of faults for requests. It is equal in every run."""

    def __init__(self, rate, seed):
        self.rate = rate
        self.random = random.Random(seed)
        self.lock = threading.Lock()
        self.counts = Counter()
        self.forced = []
        self.down_until = 0.0

    def force(self, faults):
        """Spoils the next reads of objects in this order, whatever the rate is."""
        with self.lock:
            self.forced.extend(faults)

    def begin_outage(self, seconds):
        self.down_until = time.monotonic() + seconds

    def is_down(self):
        return time.monotonic() < self.down_until

    def next(self, is_read):
        with self.lock:
            if is_read and self.forced:
                self.counts[self.forced[0]] += 1
                return self.forced.pop(0)
            fault = self.random.choice(FAULTS) if self.random.random() < self.rate else "none"
            self.counts[fault] += 1
            return fault


class Proxy(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def cut(self):
        """Resets the connection instead of closing it."""
        self.close_connection = True
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        self.connection.close()

    def answer(self, status, headers, body, part=1.0):
        self.send_response_only(status)
        for name, value in headers:
            if name.lower() not in ("connection", "transfer-encoding", "content-length"):
                self.send_header(name, value)
        length = next((value for name, value in headers if name.lower() == "content-length"), len(body))
        self.send_header("Content-Length", length if self.command == "HEAD" else len(body))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[: int(len(body) * part)])
        self.wfile.flush()

    def answer_error(self, status, code):
        body = f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>injected</Message></Error>".encode()
        self.answer(status, [("Content-Type", "application/xml")], b"" if self.command == "HEAD" else body)

    def forward(self, body):
        connection = http.client.HTTPConnection("127.0.0.1", self.server.target, timeout=60)
        connection.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            if name.lower() != "expect":
                connection.putheader(name, value)
        connection.endheaders(body or None)
        reply = connection.getresponse()
        result = reply.status, reply.getheaders(), reply.read()
        connection.close()
        return result

    def control(self, plan, path, query):
        """Answers the requests of a test to the proxy itself."""
        if path == "/proxy/outage":
            plan.begin_outage(float(query))
        elif path == "/proxy/force":
            plan.force(query.split(","))
        elif path == "/proxy/redirect":
            self.answer(302, [("Location", query)], b"")
            return
        self.answer(200, [], json.dumps(plan.counts).encode())

    def handle_request(self):
        plan = self.server.plan
        path, _, query = self.path.partition("?")
        if path.startswith("/proxy/"):
            self.control(plan, path, query)
            return
        if plan.is_down():
            self.cut()
            return
        # A list has a query.
        fault = plan.next(self.command == "GET" and not query)
        length = int(self.headers.get("Content-Length") or 0)
        if fault == "cut_request":
            self.rfile.read(length // 2)
            self.cut()
            return
        body = self.rfile.read(length)
        # moto does not compare the signed checksum with the body.
        if hashlib.sha256(body).hexdigest() != self.headers.get("x-amz-content-sha256"):
            self.answer_error(400, "XAmzContentSHA256Mismatch")
            return
        if fault.startswith("error_"):
            self.answer_error(int(fault[-3:]), "InternalError" if fault == "error_500" else "SlowDown")
            return
        status, headers, reply = self.forward(body)
        if fault == "lost_reply":
            self.cut()
        elif fault == "half":
            self.answer(status, headers, reply[: len(reply) // 2])
        elif fault == "missing":
            self.answer_error(404, "NoSuchKey")
        elif fault == "crawl":
            self.answer(status, headers, reply, part=0.0)
            for byte in range(len(reply)):
                self.wfile.write(reply[byte:byte + 1])
                time.sleep(1 / 3)
        elif fault == "cut_reply" and reply:
            self.answer(status, headers, reply, part=0.5)
            self.cut()
        elif fault == "stall":
            self.answer(status, headers, reply, part=0.5) if reply else time.sleep(STALL_SECONDS)
            time.sleep(STALL_SECONDS)
            self.cut()
        else:
            self.answer(status, headers, reply)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = handle_request


class ProxyServer(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, target, plan, certificate=None):
        super().__init__(("127.0.0.1", 0), Proxy)
        self.target = target
        self.plan = plan
        self.scheme = "https" if certificate else "http"
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
        threading.Thread(target=self.serve_forever, daemon=True).start()

    def handle_error(self, request, client_address):
        pass  # the client is gone, or the connection was cut on purpose

    def address(self):
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"


def make_certificate(path):
    """Writes a key and a self-signed certificate for 127.0.0.1."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.timezone.utc)
    day = datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(1).not_valid_before(now - day).not_valid_after(now + day)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256()))
    with open(path, "wb") as file:
        file.write(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8,
                                     serialization.NoEncryption()))
        file.write(certificate.public_bytes(serialization.Encoding.PEM))


def make_user(iam, name, policy):
    iam.create_user(UserName=name)
    iam.put_user_policy(UserName=name, PolicyName=name, PolicyDocument=json.dumps(policy))
    key = iam.create_access_key(UserName=name)["AccessKey"]
    return {"access_key": key["AccessKeyId"], "secret_key": key["SecretAccessKey"]}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=float, default=0.2, help="the part of requests that `faulty` spoils")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--certificate", help="where to write the certificate of the third port, `tls`")
    options = parser.parse_args()

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    moto = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    moto.start()
    host, port = moto.get_host_and_port()
    address = f"http://{host}:{port}"
    client = dict(endpoint_url=address, region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x")
    boto3.client("s3", **client).create_bucket(Bucket=BUCKET)
    iam = boto3.client("iam", **client)
    users = {"writer": make_user(iam, "writer", POLICY), "reader": make_user(iam, "reader", READ_ONLY)}
    # From now on one of these users must sign every request.
    urllib.request.urlopen(urllib.request.Request(
        address + "/moto-api/reset-auth", data=b"0", headers={"Content-Type": "text/plain"}, method="POST")).read()
    plain = ProxyServer(port, FaultPlan(0.0, options.seed))
    faulty = ProxyServer(port, FaultPlan(options.rate, options.seed))
    addresses = {"plain": plain.address(), "faulty": faulty.address(), "bucket": BUCKET}
    if options.certificate:
        make_certificate(options.certificate)
        addresses["tls"] = ProxyServer(port, FaultPlan(0.0, options.seed), options.certificate).address()
    print(json.dumps({**addresses, **users}), flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
