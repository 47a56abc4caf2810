/* A test double of libibverbs with one device, stub0, or GDR_STUB_DEVICES of
 * them, stub0, stub1 and so on, that moves data between
 * queue pairs: of the same process by memcpy, to another process over a socket,
 * whose other end does there what a NIC would. The numbers of queue pairs tell
 * which process they are of. GDR_STUB_FAULT, read at every open, makes it
 * misbehave:
 *   flip:N   one bit of the N-th message arrives wrong
 *   stray:N  the N-th message also writes a byte behind itself
 *   drop:N   the N-th message is lost: a datagram vanishes, a reliable one fails
 *            with IBV_WC_RETRY_EXC_ERR
 *   lose:N   every N-th one is
 *   memlock  registration fails with ENOMEM
 *   hang     opening the device does not return
 *   crash    opening it ends the process
 *   stop     the first send neither completes nor returns
 *   inline   a queue pair with more than 32 bytes inline is refused
 *   unplug:N before the N-th message the cable is pulled: no message goes any
 *            more, and the port is down, which an event tells of
 *   event:N:T before the N-th message an event of enum ibv_event_type T comes, on
 *            port 1, on the sender's queue pair, or on the device; of a fatal one no
 *            message goes any more
 *   stale:N  the N-th message completes, and nothing of it arrives
 *
 * GDR_STUB_CALL makes a call of those that set up misbehave, as "ibv_create_qp:hang",
 * "ibv_create_qp:crash" or "ibv_create_qp:exit".
 *
 * GDR_STUB_SPEED is what ibv_query_port_speed answers, 0: an error; without it there
 * is none for this device.
 *
 * GDR_STUB_CUDA_LIBRARY is a libcuda, the real one or another double, that knows
 * what of the memory is a GPU's and moves it. GDR_STUB_DMABUF, GDR_STUB_DIRECT and
 * GDR_STUB_PEERMEM are errnos that registrations of such memory fail with: as
 * dma-buf, as dma-buf for mlx5's Data Direct, by address. Without the first, a
 * dma-buf is looked at as far as it can be: it must be open, long enough, and
 * aligned as the kernel wants. */
#include "provider.h"

#include <stdio.h>
#include <sys/eventfd.h>

pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
struct qp *qps[QPS];
struct qp *stalled;
long messages, fault_at;
int unplugged, reported;
char fault[16];
int fault_type;
static struct ibv_device devices[] = {
	{ .name = "stub0" }, { .name = "stub1" }, { .name = "stub2" }, { .name = "stub3" },
	{ .name = "stub4" }, { .name = "stub5" }, { .name = "stub6" }, { .name = "stub7" },
};

int is(const char *name) { return messages == fault_at && !strcmp(fault, name); }

/* Every call that sets up begins with what GDR_STUB_CALL has it do. */
static void begin(const char *call)
{
	const char *f = getenv("GDR_STUB_CALL");
	size_t n = strlen(call);

	if (!f || strncmp(f, call, n) || f[n] != ':')
		return;
	while (!strcmp(f + n + 1, "hang"))
		pause();
	if (!strcmp(f + n + 1, "exit"))
		_exit(3);
	abort();
}

struct ibv_device **ibv_get_device_list(int *num)
{
	enum { MOST = sizeof(devices) / sizeof(devices[0]) };
	static struct ibv_device *list[MOST + 1];
	const char *asked = getenv("GDR_STUB_DEVICES");
	int n = asked ? atoi(asked) : 1;

	begin(__func__);
	n = n < MOST ? n : MOST;
	for (int i = 0; i < n; i++)
		list[i] = &devices[i];
	if (num)
		*num = n;
	return list;
}
void ibv_free_device_list(struct ibv_device **list) { (void)list; }
const char *ibv_get_device_name(struct ibv_device *d) { return d->name; }

struct ibv_context *ibv_open_device(struct ibv_device *d)
{
	struct device *v = calloc(1, sizeof(*v));
	const char *f = getenv("GDR_STUB_FAULT");

	begin(__func__);
	*fault = 0;
	fault_at = messages = unplugged = reported = 0;
	fault_type = -1;
	if (f)
		sscanf(f, "%15[a-z]:%ld:%d", fault, &fault_at, &fault_type);
	load_cuda();
	open_process();
	v->v.context.device = d;
	set_ops(&v->v.context.ops);
	open_events(v);
	while (!strcmp(fault, "hang"))
		pause();
	if (!strcmp(fault, "crash"))
		abort();
	return &v->v.context;
}
static int destroyed(void *p)
{
	free(p);
	return 0;
}
int ibv_close_device(struct ibv_context *c)
{
	close_events(device_of(c));
	return destroyed(device_of(c));
}
int ibv_query_device(struct ibv_context *c, struct ibv_device_attr *a)
{
	begin(__func__);
	(void)c;
	strcpy(a->fw_ver, "1.2.3");
	a->phys_port_cnt = 1;
	a->max_qp_rd_atom = a->max_qp_init_rd_atom = 16;
	return 0;
}
int ibv_query_port(struct ibv_context *c, uint8_t n, struct _compat_ibv_port_attr *out)
{
	struct ibv_port_attr *a = (struct ibv_port_attr *)out;

	begin(__func__);
	(void)c;
	if (n != 1)
		return EINVAL;
	a->state = unplugged ? IBV_PORT_DOWN : IBV_PORT_ACTIVE;
	a->max_mtu = a->active_mtu = IBV_MTU_4096;
	a->gid_tbl_len = 8;
	a->link_layer = IBV_LINK_LAYER_ETHERNET;
	return 0;
}
int ibv_query_port_speed(struct ibv_context *c, uint32_t port, uint64_t *speed)
{
	const char *v = getenv("GDR_STUB_SPEED");

	begin(__func__);
	(void)c;
	if (port != 1)
		return EINVAL;
	if (!v)
		return EOPNOTSUPP;
	*speed = strtoull(v, NULL, 10);
	return *speed ? 0 : EIO;
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
	begin(__func__);
	(void)flags, (void)size;
	e->gid_type = index ? IBV_GID_TYPE_ROCE_V2 : IBV_GID_TYPE_ROCE_V1;
	return ibv_query_gid(c, (uint8_t)port, (int)index, &e->gid) ? errno : 0;
}
struct ibv_pd *ibv_alloc_pd(struct ibv_context *c)
{
	struct ibv_pd *pd = calloc(1, sizeof(*pd));

	begin(__func__);
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
	begin(__func__);
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
	begin(__func__);
	(void)access;
	if (asked("GDR_STUB_DMABUF"))
		return refused(asked("GDR_STUB_DMABUF"));
	return imported(pd, offset, length, iova, fd);
}
struct ibv_mr *mlx5dv_reg_dmabuf_mr(struct ibv_pd *pd, uint64_t offset, size_t length, uint64_t iova, int fd, int access, int mlx5_access)
{
	begin(__func__);
	(void)access;
	if (asked("GDR_STUB_DIRECT"))
		return refused(asked("GDR_STUB_DIRECT"));
	return mlx5_access == 1 ? imported(pd, offset, length, iova, fd) : refused(EINVAL);
}
int ibv_dereg_mr(struct ibv_mr *mr) { return destroyed(mr); }
struct ibv_comp_channel *ibv_create_comp_channel(struct ibv_context *c)
{
	struct ibv_comp_channel *ch = calloc(1, sizeof(*ch));

	begin(__func__);
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

	begin(__func__);
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

	begin(__func__);
	if (a->cap.max_inline_data > (strcmp(fault, "inline") ? sizeof(q->sq->inlined) : 32)) {
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

	begin(__func__);
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
	if (q->events)
		abort(); /* the real one waits until each is acknowledged */
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

	begin(__func__);
	(void)a;
	ah->context = pd->context;
	return ah;
}
int ibv_destroy_ah(struct ibv_ah *ah) { return destroyed(ah); }
