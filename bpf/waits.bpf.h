/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Calls in which the host waits for the GPU. Each wait of at least settings.long_wait is also an event. */
#pragma once

static __always_inline void begin_wait(struct hit *hit, struct frame *frame)
{
	frame->wait.blocked = hit->thread->blocked;
	take_begin(hit->thread, &frame->begin, bpf_ktime_get_ns());
}

static __always_inline void end_wait(struct hit *hit, struct frame *frame)
{
	__u64 duration = hit->time - frame->start;
	struct event *event;

	count(hit->thread, SYNC, frame->phase, duration, 0);
	if (!has_failed(hit))
		settle_collectives(hit->thread, frame->start, hit->time);
	note_result(hit->thread, hit->time, frame->wait.blocked);
	if (duration < settings.long_wait)
		return;
	take_end(hit->thread, &hit->thread->now, hit->time);
	event = new_event(hit->thread, INTERVAL_SYNC, frame->begin.time, hit->thread->now.time);
	if (!event)
		return;
	add_snapshots(event, &frame->begin, &hit->thread->now);
	event->phase = frame->phase;
	event->flags = hit->flags;
	emit(event);
}
