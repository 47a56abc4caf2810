/* Messages of the double to and from other processes, over a socket. */
#include "provider.h"

#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

/* What one process asks of another's NIC, before the data, and its answer, before
 * the data of a read. */
struct request {
	uint32_t qp, opcode, n, imm;
	uint64_t addr;
	int ud, with_imm, stray, stale;
};
enum { FAR_DONE, FAR_NOT_READY };

uint32_t process_of(uint32_t number) { return number / QPS; }
uint32_t own_process(void) { return (uint32_t)getpid() % QPS; }

static socklen_t name_of(uint32_t process, struct sockaddr_un *a)
{
	memset(a, 0, sizeof(*a));
	a->sun_family = AF_UNIX;
	return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)sprintf(a->sun_path + 1, "gdr-stub-%u", process));
}

static int all(ssize_t (*io)(int, void *, size_t), int fd, void *buf, size_t n)
{
	while (n) {
		ssize_t k = io(fd, buf, n);

		if (k <= 0)
			return -1;
		buf = (char *)buf + k;
		n -= (size_t)k;
	}
	return 0;
}
static ssize_t put(int fd, void *buf, size_t n) { return send(fd, buf, n, MSG_NOSIGNAL); }

/* Does what another process asks; 0: not yet. */
static int obey(struct request *r, uint8_t *data)
{
	struct qp *q;
	uint8_t *to = (uint8_t *)(uintptr_t)r->addr;
	int write = r->opcode == IBV_WR_RDMA_WRITE_WITH_IMM, done = 1;

	pthread_mutex_lock(&lock);
	q = qps[r->qp % QPS];
	if (!q || q->state < IBV_QPS_RTR)
		done = r->ud;
	else if (r->opcode == IBV_WR_RDMA_READ)
		move(data, to, r->n);
	else if (r->opcode != IBV_WR_RDMA_WRITE)
		done = take(q, r->stale ? NULL : data, r->n, write, r->ud, r->with_imm, r->imm, &to) || r->ud;
	else if (!r->stale)
		place(to, data, r->n);
	if (done && r->stray)
		change(to + r->n, 0x40);
	pthread_mutex_unlock(&lock);
	return done;
}

static void *serve(void *arg)
{
	int fd = (int)(intptr_t)arg;
	struct request r;

	while (!all(read, fd, &r, sizeof(r))) {
		uint8_t *data = malloc(r.n + 1u);
		int answer;

		if (r.opcode != IBV_WR_RDMA_READ && all(read, fd, data, r.n))
			break;
		answer = obey(&r, data) ? FAR_DONE : FAR_NOT_READY;
		if (all(put, fd, &answer, sizeof(answer)) || (r.opcode == IBV_WR_RDMA_READ && answer == FAR_DONE && all(put, fd, data, r.n)))
			break;
		free(data);
	}
	close(fd);
	return NULL;
}

static void *listen_for(void *arg)
{
	int s = (int)(intptr_t)arg, fd;
	pthread_t t;

	while ((fd = accept(s, NULL, NULL)) >= 0)
		if (!pthread_create(&t, NULL, serve, (void *)(intptr_t)fd))
			pthread_detach(t);
	return NULL;
}

void open_process(void)
{
	static int once;
	struct sockaddr_un a;
	pthread_t t;
	int s;

	if (once++)
		return;
	s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s >= 0 && bind(s, (struct sockaddr *)&a, name_of(own_process(), &a)) && errno == EADDRINUSE) {
		close(s); /* another copy of this library in this process has it */
		return;
	}
	if (s < 0 || listen(s, 64) ||
	    pthread_create(&t, NULL, listen_for, (void *)(intptr_t)s))
		abort();
	pthread_detach(t);
}

int step_far(struct qp *q, struct entry *e, uint32_t number, uint8_t *from)
{
	int ud = q->qp.qp_type == IBV_QPT_UD, answer = FAR_DONE, failed = 0, reads = e->wr.opcode == IBV_WR_RDMA_READ;
	int with_imm = e->wr.opcode == IBV_WR_SEND_WITH_IMM || e->wr.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
	struct request r = { .qp = number, .opcode = e->wr.opcode, .n = e->sge.length, .imm = e->wr.imm_data,
		.addr = ud ? 0 : e->wr.wr.rdma.remote_addr, .ud = ud, .with_imm = with_imm };
	uint8_t *data = malloc(r.n + 1u);

	messages++;
	r.stray = is("stray");
	r.stale = is("stale");
	failed = is("drop");
	if (!reads && r.n)
		move(data, from, r.n);
	if (!reads && is("flip"))
		data[r.n / 2] ^= 1;
	if (!failed && !q->far) {
		struct sockaddr_un a;

		q->far = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
		failed = connect(q->far, (struct sockaddr *)&a, name_of(process_of(number), &a));
	}
	pthread_mutex_unlock(&lock);
	if (!failed)
		failed = all(put, q->far, &r, sizeof(r)) || (!reads && all(put, q->far, data, r.n)) ||
			 all(read, q->far, &answer, sizeof(answer)) || (reads && answer == FAR_DONE && all(read, q->far, data, r.n));
	pthread_mutex_lock(&lock);
	if (!failed && answer == FAR_NOT_READY) {
		messages--;
		stalled = q;
		free(data);
		return 0;
	}
	if (!failed && reads && !r.stale) {
		if (is("flip"))
			data[r.n / 2] ^= 1;
		move((void *)(uintptr_t)e->sge.addr, data, r.n);
	}
	free(data);
	q->sq_tail++;
	complete(q, e, failed && !ud ? IBV_WC_RETRY_EXC_ERR : IBV_WC_SUCCESS);
	return 1;
}
