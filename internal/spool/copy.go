package spool

// Copy is a copy in memory of bytes that pass by, up to a size. It never waits for room: without
// room it holds nothing. It must be closed, and is not safe for concurrent use.
type Copy struct {
	room  *Budget
	org   string
	most  int64
	taken int64
	body  []byte
	over  bool
}

// Copy returns an empty Copy of at most `most` bytes for an org.
func (b *Budget) Copy(org string, most int64) *Copy { return &Copy{room: b, org: org, most: most} }

// Add appends bytes.
func (c *Copy) Add(p []byte) {
	if c.over {
		return
	}
	if !c.fits(int64(len(c.body) + len(p))) {
		c.over, c.body = true, nil
		return
	}
	c.body = append(c.body, p...)
}

// copyStep is how much memory a Copy takes at a time.
const copyStep = 32 << 10

// fits reports whether there is memory for that many bytes.
func (c *Copy) fits(size int64) bool {
	if size > c.most {
		return false
	}
	if size <= c.taken {
		return true
	}
	more := max(size-c.taken, c.taken, copyStep) // as append grows
	if !c.room.Try(c.org, more) {
		return false
	}
	c.taken += more
	return true
}

// Bytes returns what was added, until Close; whole is false if there was no room for all of it.
func (c *Copy) Bytes() (body []byte, whole bool) { return c.body, !c.over }

// Close returns the memory.
func (c *Copy) Close() {
	if c.taken > 0 {
		c.room.Give(c.org, c.taken)
		c.taken = 0
	}
	c.over, c.body = true, nil
}
