package guard

import (
	"maps"

	"github.com/llmguard/llmguard/budget"
)

// remember keeps a hold that this process took, so that it can be ended while the store is unavailable.
func (hs *Holds) remember(id string, h *budget.Hold) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if hs.fits(id) {
		hs.known[id] = knownHold{hold: h, until: h.Ends}
	}
}

// fits reports whether one more hold can be remembered. It forgets those that have ended. The caller
// has the lock.
func (hs *Holds) fits(id string) bool {
	if _, has := hs.known[id]; has {
		return true
	}
	if len(hs.known) >= knownMost {
		at := now()
		maps.DeleteFunc(hs.known, func(_ string, k knownHold) bool { return k.until.Before(at) })
	}
	return len(hs.known) < knownMost
}

// knownMost bounds the holds that a process remembers, at about 1 KB each.
const knownMost = 20_000

func (hs *Holds) recall(id string) knownHold {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	return hs.known[id]
}

// keep remembers that a hold's end is in the journal.
func (hs *Holds) keep(id string, st HeldState) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	if !hs.fits(id) {
		return // the journal has it, and a repetition is settled once
	}
	k := hs.known[id]
	k.kept = &st
	hs.known[id] = k
}

func (hs *Holds) forget(id string) {
	hs.mu.Lock()
	defer hs.mu.Unlock()
	delete(hs.known, id)
}
