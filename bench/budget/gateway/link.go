package gateway

import (
	"context"
	"net"
	"sync"
	"time"
)

// Link is a TCP proxy in front of a service. It can cut the service off, or delay what passes. Its
// methods are safe for concurrent use.
type Link struct {
	listener net.Listener
	target   string

	mu    sync.Mutex
	gone  bool
	delay time.Duration
	conns map[net.Conn]bool
}

func newLink(target string) (*Link, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &Link{listener: listener, target: target, conns: map[net.Conn]bool{}}
	go l.accept()
	return l, nil
}

// Addr is the host and port that gateways connect to.
func (l *Link) Addr() string { return l.listener.Addr().String() }

// Cut breaks all connections and accepts none until Restore.
func (l *Link) Cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone = true
	for conn := range l.conns {
		_ = conn.Close()
	}
}

// Restore ends Cut and Slow.
func (l *Link) Restore() { l.set(false, 0) }

// Slow delays everything that passes, in each direction.
func (l *Link) Slow(delay time.Duration) { l.set(false, delay) }

func (l *Link) set(gone bool, delay time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.gone, l.delay = gone, delay
}

func (l *Link) close() {
	_ = l.listener.Close()
	l.Cut()
}

func (l *Link) accept() {
	for {
		near, err := l.listener.Accept()
		if err != nil {
			return
		}
		far, err := (&net.Dialer{Timeout: time.Second}).DialContext(context.Background(), "tcp", l.target)
		if err != nil || !l.keep(near, far) {
			_ = near.Close()
			if far != nil {
				_ = far.Close()
			}
			continue
		}
		go l.copy(near, far)
		go l.copy(far, near)
	}
}

func (l *Link) keep(conns ...net.Conn) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		l.conns[conn] = true
	}
	return !l.gone
}

// copy delays pieces without holding back the pieces behind them, like a longer cable.
func (l *Link) copy(to, from net.Conn) {
	type piece struct {
		at   time.Time
		data []byte
	}
	pieces := make(chan piece, 1024)
	go func() {
		defer l.drop(to, from)
		for p := range pieces {
			time.Sleep(time.Until(p.at))
			if _, err := to.Write(p.data); err != nil {
				return
			}
		}
	}()
	defer close(pieces)
	buffer := make([]byte, 64<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		l.mu.Lock()
		at := time.Now().Add(l.delay)
		l.mu.Unlock()
		select {
		case pieces <- piece{at, append([]byte(nil), buffer[:n]...)}:
		case <-time.After(time.Minute): // the other side is gone
			return
		}
	}
}

func (l *Link) drop(conns ...net.Conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, conn := range conns {
		_ = conn.Close()
		delete(l.conns, conn)
	}
}
