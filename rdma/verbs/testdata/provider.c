/* A test double of libibverbs with one device, stub0, that moves data between
 * queue pairs: of the same process by memcpy, to another process over a socket,
 * whose other end does there what a NIC would. The numbers of queue pairs tell
 * which process they are of. GDR_STUB_FAULT, read at every open, makes it
 * misbehave:
 *   flip:N   one bit of the N-th message arrives wrong
 *   stray:N  the N-th message also writes a byte behind itself
 *   drop:N   the N-th message is lost: a datagram vanishes, a reliable one fails
 *            with IBV_WC_RETRY_EXC_ERR
 *   memlock  registration fails with ENOMEM
 *   hang     opening the device does not return
 *   crash    opening it ends the process
 *   stop     the first send neither completes nor returns
 *   inline   a queue pair with more than 32 bytes inline is refused
 *   unplug:N before the N-th message the cable is pulled: no message goes any
 *            more, and the port is down
 *   stale:N  the N-th message completes, and nothing of it arrives
 *
 * GDR_STUB_CUDA_LIBRARY is a libcuda, the real one or another double, that knows
 * what of the memory is a GPU's and moves it. GDR_STUB_DMABUF, GDR_STUB_DIRECT and
 * GDR_STUB_PEERMEM are errnos that registrations of such memory fail with: as
 * dma-buf, as dma-buf for mlx5's Data Direct, by address. Without the first, a
 * dma-buf is looked at as far as it can be: it must be open, long enough, and
 * aligned as the kernel wants. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr

enum { QPS = 4096, GRH = 40 };

struct entry {
	struct ibv_send_wr wr;
	struct ibv_sge sge;
	uint8_t inlined[256];
};
struct cq {
	struct ibv_cq cq;
	struct ibv_wc *wc;
	unsigned int head, tail, size;
	int armed;
};
struct qp {
	struct ibv_qp qp;
	enum ibv_qp_state state;
	uint32_t peer;
	int far; /* socket to the process of the peer; 0: none yet */
	struct entry *sq;
	struct ibv_recv_wr *rq;
	struct ibv_sge *rsge;
	unsigned int sq_head, sq_tail, sq_size, rq_head, rq_tail, rq_size;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct qp *qps[QPS];
static long messages, fault_at;
static int unplugged;
static char fault[16];
static struct ibv_device dev = { .name = "stub0" };
static struct qp *stalled; /* its oldest request waits for another process's receive */

/* The GPU's side, where there is one. */
static struct {
	int (*copy)(unsigned long long, unsigned long long, size_t);
	int (*pointer)(void *, int, unsigned long long);
	int (*retain)(void **, int);
	int (*set_current)(void *);
	void *context;
} cu;

static void load_cuda(void)
{
	static char loaded[4096];
	const char *path = getenv("GDR_STUB_CUDA_LIBRARY");
	void *lib;

	if (!path || !strcmp(path, loaded))
		return;
	snprintf(loaded, sizeof(loaded), "%s", path);
	cu.context = NULL;
	lib = dlopen(path, RTLD_LAZY);
	if (!lib)
		abort();
	*(void **)&cu.pointer = dlsym(lib, "cuPointerGetAttribute");
	*(void **)&cu.retain = dlsym(lib, "cuDevicePrimaryCtxRetain");
	*(void **)&cu.set_current = dlsym(lib, "cuCtxSetCurrent");
	*(void **)&cu.copy = dlsym(lib, "cuMemcpy");
}

static int on_gpu(const void *p)
{
	enum { MEMORY_TYPE = 2, DEVICE = 2 };
	unsigned int type = 0;

	return cu.pointer && !cu.pointer(&type, MEMORY_TYPE, (unsigned long long)(uintptr_t)p) && type == DEVICE;
}

/* Moves bytes wherever they are. */
static void move(void *to, const void *from, size_t n)
{
	if (!on_gpu(to) && !on_gpu(from)) {
		memcpy(to, from, n);
		return;
	}
	if (!cu.context && cu.retain(&cu.context, 0))
		abort();
	if (cu.set_current(cu.context) || cu.copy((unsigned long long)(uintptr_t)to, (unsigned long long)(uintptr_t)from, n))
		abort();
}

static void change(uint8_t *at, uint8_t by)
{
	uint8_t b;

	move(&b, at, 1);
	b ^= by;
	move(at, &b, 1);
}

struct ibv_device **ibv_get_device_list(int *num)
{
	static struct ibv_device *list[2] = { &dev };

	if (num)
		*num = 1;
	return list;
}
void ibv_free_device_list(struct ibv_device **list) { (void)list; }
const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }

static void push(struct cq *cq, struct ibv_wc wc)
{
	if (cq->head - cq->tail == cq->size)
		abort(); /* an overrun completion queue */
	cq->wc[cq->head++ % cq->size] = wc;
	if (cq->armed && cq->cq.channel) {
		uint64_t one = 1;

		cq->armed = 0;
		if (write(cq->cq.channel->fd, &one, sizeof(one)) < 0)
			abort();
	}
}

static void complete(struct qp *q, const struct entry *e, enum ibv_wc_status status)
{
	if (status || e->wr.send_flags & IBV_SEND_SIGNALED)
		push((struct cq *)q->qp.send_cq, (struct ibv_wc){ .wr_id = e->wr.wr_id, .status = status, .vendor_err = status ? 0x81 : 0 });
}

static int is(const char *name) { return messages == fault_at && !strcmp(fault, name); }

/* Places a message that comes with a receive. 0: there is none. */
static int take(struct qp *peer, const void *from, uint32_t n, int write, int ud, int with_imm, uint32_t imm, uint8_t **to)
{
	struct ibv_recv_wr *r = &peer->rq[peer->rq_tail % peer->rq_size];
	struct ibv_sge *s = &peer->rsge[peer->rq_tail % peer->rq_size];

	if (peer->rq_head == peer->rq_tail)
		return 0;
	peer->rq_tail++;
	if (!write) {
		*to = (uint8_t *)(uintptr_t)s->addr + (ud ? GRH : 0);
		if (s->length < n + (ud ? GRH : 0))
			abort();
	}
	if (n && from)
		move(*to, from, n);
	push((struct cq *)peer->qp.recv_cq, (struct ibv_wc){
		.wr_id = r->wr_id, .byte_len = n, .imm_data = imm, .wc_flags = with_imm ? IBV_WC_WITH_IMM : 0 });
	return 1;
}

/* Writes so that whoever polls the last byte finds the others there. */
static void place(uint8_t *to, const uint8_t *from, uint32_t n)
{
	if (on_gpu(to) || on_gpu(from)) {
		move(to, from, n);
		return;
	}
	if (n > 1)
		memcpy(to, from, n - 1);
	__atomic_store_n(to + n - 1, from[n - 1], __ATOMIC_RELEASE);
}

/* What one process asks of another's NIC, before the data, and its answer, before
 * the data of a read. */
struct request {
	uint32_t qp, opcode, n, imm;
	uint64_t addr;
	int ud, with_imm, stray, stale;
};
enum { FAR_DONE, FAR_NOT_READY };

static uint32_t process_of(uint32_t number) { return number / QPS; }
static uint32_t own_process(void) { return (uint32_t)getpid() % QPS; }

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

static void open_process(void)
{
	static int once;
	struct sockaddr_un a;
	pthread_t t;
	int s;

	if (once++)
		return;
	s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
	if (s < 0 || bind(s, (struct sockaddr *)&a, name_of(own_process(), &a)) || listen(s, 64) ||
	    pthread_create(&t, NULL, listen_for, (void *)(intptr_t)s))
		abort();
	pthread_detach(t);
}

/* Has another process do the oldest request of q, with the lock given up
 * meanwhile: the other may ask something of us. As step. */
static int step_far(struct qp *q, struct entry *e, uint32_t number, uint8_t *from)
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

/* Runs the oldest request of q; 0 if it has to wait for a receive. */
static int step(struct qp *q)
{
	struct entry *e = &q->sq[q->sq_tail % q->sq_size];
	int ud = q->qp.qp_type == IBV_QPT_UD;
	uint32_t number = ud ? e->wr.wr.ud.remote_qpn : q->peer;
	struct qp *peer = qps[number % QPS];
	enum ibv_wr_opcode op = e->wr.opcode;
	int receives = op == IBV_WR_SEND || op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
	int imm = op == IBV_WR_SEND_WITH_IMM || op == IBV_WR_RDMA_WRITE_WITH_IMM;
	uint8_t *from = e->wr.send_flags & IBV_SEND_INLINE ? e->inlined : (uint8_t *)(uintptr_t)e->sge.addr, *to;
	uint32_t n = e->sge.length;

	if (process_of(number) != own_process())
		return step_far(q, e, number, from);
	if (!peer || peer->state < IBV_QPS_RTR) {
		if (!ud)
			return 0;
		q->sq_tail++;
		complete(q, e, IBV_WC_SUCCESS);
		return 1;
	}
	if (receives && peer->rq_head == peer->rq_tail && !ud)
		return 0;
	if (messages + 1 >= fault_at && !strcmp(fault, "unplug")) {
		unplugged = 1;
		return 0;
	}
	messages++;
	q->sq_tail++;
	if (is("drop") || (receives && peer->rq_head == peer->rq_tail)) {
		complete(q, e, ud ? IBV_WC_SUCCESS : IBV_WC_RETRY_EXC_ERR);
		return 1;
	}
	to = (uint8_t *)(uintptr_t)e->wr.wr.rdma.remote_addr;
	if (op == IBV_WR_RDMA_READ) {
		to = (uint8_t *)(uintptr_t)e->sge.addr;
		from = (uint8_t *)(uintptr_t)e->wr.wr.rdma.remote_addr;
	}
	if (receives)
		(void)take(peer, is("stale") ? NULL : from, n, op == IBV_WR_RDMA_WRITE_WITH_IMM, ud, imm, e->wr.imm_data, &to);
	else if (!is("stale") && !is("flip"))
		place(to, from, n);
	else if (!is("stale"))
		move(to, from, n);
	if (is("flip"))
		change(to + n / 2, 1);
	if (is("stray"))
		change(to + n, 0x40);
	complete(q, e, IBV_WC_SUCCESS);
	return 1;
}

static void run(struct qp *q)
{
	while (q && q->state == IBV_QPS_RTS && q->sq_head != q->sq_tail && step(q))
		;
}

static int post_send(struct ibv_qp *qp, struct ibv_send_wr *wr, struct ibv_send_wr **bad)
{
	struct qp *q = (struct qp *)qp;
	int rc = 0;

	while (!strcmp(fault, "stop"))
		pause();
	pthread_mutex_lock(&lock);
	for (; wr && !rc; wr = wr->next) {
		struct entry *e = &q->sq[q->sq_head % q->sq_size];

		*bad = wr;
		if (q->sq_head - q->sq_tail == q->sq_size) {
			rc = ENOMEM;
			break;
		}
		e->wr = *wr;
		e->sge = wr->num_sge ? *wr->sg_list : (struct ibv_sge){ 0 };
		if (wr->send_flags & IBV_SEND_INLINE)
			memcpy(e->inlined, (void *)(uintptr_t)e->sge.addr, e->sge.length);
		q->sq_head++;
		run(q);
	}
	pthread_mutex_unlock(&lock);
	return rc;
}

static int post_recv(struct ibv_qp *qp, struct ibv_recv_wr *wr, struct ibv_recv_wr **bad)
{
	struct qp *q = (struct qp *)qp;
	int rc = 0;

	pthread_mutex_lock(&lock);
	*bad = wr;
	if (q->rq_head - q->rq_tail == q->rq_size) {
		rc = ENOMEM;
	} else {
		q->rq[q->rq_head % q->rq_size] = *wr;
		if (wr->num_sge)
			q->rsge[q->rq_head % q->rq_size] = *wr->sg_list;
		q->rq_head++;
	}
	if (q->qp.qp_type == IBV_QPT_RC)
		run(qps[q->peer % QPS]);
	pthread_mutex_unlock(&lock);
	return rc;
}

static int poll_cq(struct ibv_cq *c, int n, struct ibv_wc *wc)
{
	struct cq *cq = (struct cq *)c;
	int i;

	pthread_mutex_lock(&lock);
	if (stalled && cq->head == cq->tail) {
		struct qp *q = stalled;

		stalled = NULL;
		run(q);
	}
	for (i = 0; i < n && cq->head != cq->tail; i++)
		wc[i] = cq->wc[cq->tail++ % cq->size];
	pthread_mutex_unlock(&lock);
	if (!i)
		sched_yield(); /* the other end may want this processor */
	return i;
}

static int req_notify_cq(struct ibv_cq *c, int solicited)
{
	(void)solicited;
	pthread_mutex_lock(&lock);
	((struct cq *)c)->armed = 1;
	pthread_mutex_unlock(&lock);
	return 0;
}

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	struct verbs_context *v = calloc(1, sizeof(*v));
	const char *f = getenv("GDR_STUB_FAULT");

	*fault = 0;
	fault_at = messages = unplugged = 0;
	if (f)
		sscanf(f, "%15[a-z]:%ld", fault, &fault_at);
	load_cuda();
	open_process();
	v->context.device = d;
	v->context.ops.post_send = post_send;
	v->context.ops.post_recv = post_recv;
	v->context.ops.poll_cq = poll_cq;
	v->context.ops.req_notify_cq = req_notify_cq;
	while (!strcmp(fault, "hang"))
		pause();
	if (!strcmp(fault, "crash"))
		abort();
	return &v->context;
}
static int destroyed(void *p)
{
	free(p);
	return 0;
}
int ibv_close_device(struct ibv_context *c) { return destroyed((char *)c - offsetof(struct verbs_context, context)); }
int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	(void)c;
	strcpy(a->fw_ver, "1.2.3");
	a->phys_port_cnt = 1;
	a->max_qp_rd_atom = a->max_qp_init_rd_atom = 16;
	return 0;
}
int ibv_query_port(struct ibv_context *c, uint8_t n, struct _compat_ibv_port_attr *out)
{
	struct ibv_port_attr *a = (struct ibv_port_attr *)out;

	(void)c;
	if (n != 1)
		return EINVAL;
	a->state = unplugged ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
	a->max_mtu = a->active_mtu = IBV_MTU_4096;
	a->gid_tbl_len = 8;
	a->link_layer = IBV_LINK_LAYER_ETHERNET;
	return 0;
}
int ibv_query_gid(struct ibv_context *c, uint8_t port, int index, union ibv_gid *gid)
{
	static const uint8_t gids[3][16] = {
		{ 0xfe, 0x80, [15] = 1 }, { 0xfe, 0x80, [15] = 1 }, { [10] = 0xff, 0xff, 10, 0, 0, 1 } };

	(void)c, (void)port;
	if (index >= 3) {
		errno = ENODATA;
		return -1;
	}
	memcpy(gid, gids[index], sizeof(*gid));
	return 0;
}
int _ibv_query_gid_ex(struct ibv_context *c, uint32_t port, uint32_t index, struct ibv_gid_entry *e, uint32_t flags, size_t size)
{
	(void)flags, (void)size;
	e->gid_type = index ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
	return ibv_query_gid(c, (uint8_t)port, (int)index, &e->gid) ? errno : 0;
}
struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	pd->context = c;
	return pd;
}
int ibv_dealloc_pd(struct ibv_pd *p) { return destroyed(p); }
static struct ibv_mr *registered(struct ibv_pd *pd, void *addr, size_t length)
{
	struct ibv_mr *mr = calloc(1, sizeof(*mr));

	mr->pd = pd;
	mr->addr = addr;
	mr->length = length;
	return mr;
}
static struct ibv_mr *refused(int err)
{
	errno = err;
	return NULL;
}
static int asked(const char *env)
{
	const char *v = getenv(env);

	return v ? atoi(v) : 0;
}
struct ibv_mr *ibv_reg_mr(struct ibv_pd *pd, void *addr, size_t length, int access)
{
	(void)access;
	if (!strcmp(fault, "memlock"))
		return refused(ENOMEM);
	if (on_gpu(addr) && asked("GDR_STUB_PEERMEM"))
		return refused(asked("GDR_STUB_PEERMEM"));
	return registered(pd, addr, length);
}
static struct ibv_mr *imported(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd)
{
	off_t size = lseek(fd, 0, SEEK_END);
	long page = sysconf(_SC_PAGESIZE);

	if (fd < 0 || size < 0)
		return refused(EBADF);
	if ((offset - iova) % (uint64_t)page || offset + length > (uint64_t)size)
		return refused(EINVAL);
	return registered(pd, (void *)(uintptr_t)iova, length);
}
struct ibv_mr *ibv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access)
{
	(void)access;
	if (asked("GDR_STUB_DMABUF"))
		return refused(asked("GDR_STUB_DMABUF"));
	return imported(pd, offset, length, iova, fd);
}
struct ibv_mr *mlx5dv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access, int mlx5_access)
{
	(void)access;
	if (asked("GDR_STUB_DIRECT"))
		return refused(asked("GDR_STUB_DIRECT"));
	return mlx5_access == 1 ? imported(pd, offset, length, iova, fd) : refused(EINVAL);
}
int ibv_dereg_mr(struct ibv_mr *mr) { return destroyed(mr); }
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct ibv_comp_channel *ch = calloc(1, sizeof(*ch));

	ch->context = c;
	ch->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
	return ch;
}
int ibv_destroy_comp_channel(struct ibv_comp_channel *ch)
{
	close(ch->fd);
	return destroyed(ch);
}
struct ibv_cq *ibv_create_cq(struct ibv_context *c, int entries, void *own, struct ibv_comp_channel *ch, int vector)
{
	struct cq *cq = calloc(1, sizeof(*cq));

	(void)vector;
	cq->cq.context = c;
	cq->cq.cq_context = own;
	cq->cq.channel = ch;
	if (ch)
		ch->refcnt = 0;
	cq->size = (unsigned int)entries;
	cq->wc = calloc(cq->size, sizeof(*cq->wc));
	return &cq->cq;
}
int ibv_destroy_cq(struct ibv_cq *c)
{
	free(((struct cq *)c)->wc);
	return destroyed(c);
}
int ibv_get_cq_event(struct ibv_comp_channel *ch, struct ibv_cq **cq, void **own)
{
	uint64_t n;

	*cq = NULL;
	*own = NULL;
	return read(ch->fd, &n, sizeof(n)) < 0 ? -1 : 0;
}
void ibv_ack_cq_events(struct ibv_cq *cq, unsigned int n) { (void)cq, (void)n; }
struct ibv_qp *ibv_create_qp(struct ibv_pd *pd, struct ibv_qp_init_attr *a)
{
	static uint32_t next;
	struct qp *q;

	if (!strcmp(fault, "inline") && a->cap.max_inline_data > 32) {
		errno = EINVAL;
		return NULL;
	}
	q = calloc(1, sizeof(*q));
	q->qp.context = pd->context;
	q->qp.pd = pd;
	q->qp.send_cq = a->send_cq;
	q->qp.recv_cq = a->recv_cq;
	q->qp.qp_type = a->qp_type;
	q->sq_size = a->cap.max_send_wr;
	q->rq_size = a->cap.max_recv_wr;
	q->sq = calloc(q->sq_size, sizeof(*q->sq));
	q->rq = calloc(q->rq_size, sizeof(*q->rq));
	q->rsge = calloc(q->rq_size, sizeof(*q->rsge));
	pthread_mutex_lock(&lock);
	do {
		next++;
	} while (qps[next % QPS]);
	q->qp.qp_num = own_process() * QPS + next % QPS;
	qps[next % QPS] = q;
	pthread_mutex_unlock(&lock);
	return &q->qp;
}
int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *a, int mask)
{
	struct qp *q = (struct qp *)qp;

	pthread_mutex_lock(&lock);
	if (mask & IBV_QP_DEST_QPN)
		q->peer = a->dest_qp_num;
	if (a->qp_state == IBV_QPS_RESET)
		q->sq_head = q->sq_tail = q->rq_head = q->rq_tail = 0;
	q->state = a->qp_state;
	pthread_mutex_unlock(&lock);
	return 0;
}
int ibv_destroy_qp(struct ibv_qp *qp)
{
	struct qp *q = (struct qp *)qp;

	pthread_mutex_lock(&lock);
	qps[qp->qp_num % QPS] = NULL;
	if (stalled == q)
		stalled = NULL;
	pthread_mutex_unlock(&lock);
	if (q->far > 0)
		close(q->far);
	free(q->sq);
	free(q->rq);
	free(q->rsge);
	return destroyed(q);
}
struct ibv_ah *ibv_create_ah(struct ibv_pd *pd, struct ibv_ah_attr *a)
{
	struct ibv_ah *ah = calloc(1, sizeof(*ah));

	(void)a;
	ah->context = pd->context;
	return ah;
}
int ibv_destroy_ah(struct ibv_ah *ah) { return destroyed(ah); }
