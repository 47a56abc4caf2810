/* The measuring loops of rdma/verbs without the program around them, to count
 * their instructions: valgrind does not run Go's. This process posts, on CPU 1, and
 * another one answers, on CPU 0.
 *
 *   loops DEVICE PEER-DEVICE write|read|send bandwidth|latency COUNT */
#define _GNU_SOURCE
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "loop.h"

enum { GID_INDEX = 1, LAST_MTU = 5, BULK = 65536, DEPTH = 128 };

struct card {
	struct gdr_peer peer;
	uint32_t number, psn;
};

static struct gdr_session *session;

static void check(int failed, const char *what)
{
	if (!failed)
		return;
	fprintf(stderr, "%s failed: %s, errno %d, status %d\n", what, session ? session->error.call : "", session ? session->error.err : 0,
		session ? session->error.status : 0);
	exit(1);
}

static void swap(int fd, const void *ours, void *theirs, size_t bytes)
{
	check(write(fd, ours, bytes) != (ssize_t)bytes || recv(fd, theirs, bytes, MSG_WAITALL) != (ssize_t)bytes, "the exchange");
}

static int op_of(const char *name)
{
	return !strcmp(name, "write") ? GDR_WRITE : !strcmp(name, "read") ? GDR_READ : GDR_SEND;
}

static void end(int fd, int initiator, char **argv)
{
	int latency = !strcmp(argv[4], "latency");
	struct gdr_config c = {
		.op = op_of(argv[3]), .latency = latency, .initiator = initiator, .qps = 1, .depth = latency ? 1 : DEPTH,
		.recv_depth = 512, .post_list = 1, .max_size = latency ? 2 : BULK, .device = -1, .ways = { GDR_WAY_ADDRESS }, .ways_n = 1,
		.idle_ns = 60000000000u, .retry = 7, .rnr_retry = 7, .timeout = 14, .gid_index = GID_INDEX, .relaxed_ordering = 1,
	};
	struct gdr_step step = { .size = c.max_size, .messages = strtoull(argv[5], NULL, 10), .interval_ns = 100000000, .moderation = 1 };
	struct gdr_verbs v = { 0 };
	struct gdr_error e = { 0 };
	struct ibv_gid_entry gid;
	struct card ours = { 0 }, theirs;
	struct gdr_mismatch wrong = { 0 };
	uint64_t sent = 0, arrived;
	cpu_set_t cpu;

	CPU_ZERO(&cpu);
	CPU_SET(initiator, &cpu);
	check(sched_setaffinity(0, sizeof(cpu), &cpu), "sched_setaffinity");
	check(gdr_verbs_load(&v, "libibverbs.so.1") != NULL, "dlopen");
	check(gdr_session_open(&session, &v, argv[initiator ? 1 : 2], 1, &e), "open");
	check(gdr_session_gid(session, GID_INDEX, &gid), "gid");
	check(gdr_session_setup(session, &c, &gdr_mem_host), "setup");
	ours.peer = (struct gdr_peer){
		.gid = gid.gid, .rkey = session->mr->rkey, .addr = (uintptr_t)session->mem.addr, .bytes = session->mem.bytes,
		.mtu = LAST_MTU, .max_reads = session->device.max_qp_rd_atom,
	};
	ours.number = session->qps->qp->qp_num;
	ours.psn = session->qps->psn;
	swap(fd, &ours, &theirs, sizeof(ours));
	session->qps->peer_number = theirs.number;
	session->qps->peer_psn = theirs.psn;
	check(gdr_session_connect(session, &theirs.peer), "connect");
	check(gdr_session_prepare(session, &step), "prepare");
	swap(fd, &sent, &arrived, sizeof(sent));
	check(gdr_session_run(session), "run");
	sent = session->qps->posted;
	swap(fd, &sent, &arrived, sizeof(sent));
	if (c.op == GDR_READ)
		arrived = sent;
	if (gdr_gets_data(&session->c))
		check(gdr_session_verify(session, &arrived, latency ? GDR_MARK_END : 0, &wrong) || wrong.wrong || !wrong.compared, "the data check");
	gdr_session_close(session);
}

int main(int argc, char **argv)
{
	enum { ARGS = 6, WITH_FD };
	int fds[2], status = 0;
	char fd[16];
	pid_t child;

	if (argc == WITH_FD) {
		end(atoi(argv[ARGS]), 0, argv);
		return 0;
	}
	check(argc != ARGS, "usage");
	check(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), "socketpair");
	child = fork();
	check(child < 0, "fork");
	if (!child) { /* by exec: valgrind does not follow it there */
		snprintf(fd, sizeof(fd), "%d", fds[1]);
		execl(argv[0], argv[0], argv[1], argv[2], argv[3], argv[4], argv[5], fd, NULL);
		check(1, "exec");
	}
	end(fds[0], 1, argv);
	check(waitpid(child, &status, 0) < 0 || status, "the other end");
	return 0;
}
