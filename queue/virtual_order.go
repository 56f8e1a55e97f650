package queue

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
)

// order is a set of names sorted by a number, then by name, like a sorted set of Redis. A
// name whose number changed leaves its old entry in the heap until that comes first.
type order struct {
	score map[string]int64
	heap  orderHeap
}

type orderEntry struct {
	score int64
	name  string
}

type orderHeap []orderEntry

func (h orderHeap) Len() int { return len(h) }
func (h orderHeap) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(h[i].score, h[j].score), cmp.Compare(h[i].name, h[j].name)) < 0
}
func (h orderHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface.
func (h *orderHeap) Push(x any) { *h = append(*h, x.(orderEntry)) }

// Pop implements heap.Interface: it removes the last entry.
func (h *orderHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	*h = old[:len(old)-1]
	return last
}

func newOrder() *order { return &order{score: map[string]int64{}} }

func (o *order) has(name string) bool { _, ok := o.score[name]; return ok }

func (o *order) set(name string, score int64) {
	if old, ok := o.score[name]; ok && old == score {
		return
	}
	o.score[name] = score
	heap.Push(&o.heap, orderEntry{score, name})
}

// lower subtracts from the number of a name that is there, down to 0.
func (o *order) lower(name string, by int64) {
	if score, ok := o.score[name]; ok {
		o.set(name, max(score-by, 0))
	}
}

func (o *order) drop(name string) { delete(o.score, name) }

// all returns the names in order.
func (o *order) all() []string {
	return slices.SortedFunc(maps.Keys(o.score), func(a, b string) int {
		return cmp.Or(cmp.Compare(o.score[a], o.score[b]), cmp.Compare(a, b))
	})
}

// first returns the lowest entry; false if there is none. o may be nil.
func (o *order) first() (string, int64, bool) {
	for o != nil && len(o.heap) > 0 {
		e := o.heap[0]
		if score, ok := o.score[e.name]; ok && score == e.score {
			return e.name, e.score, true
		}
		heap.Pop(&o.heap)
	}
	return "", 0, false
}
