// Package hostile simulates malicious callers with valid keys: they announce bodies that never
// arrive, send all of a body except its end, and do not read their responses. It is for tests
// and benchmarks.
package hostile

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// Crowd is the number of connections of each kind.
type Crowd struct {
	// Absent bodies are announced and never sent; Unfinished ones lack their last byte.
	Absent, Unfinished int
	// Unread responses are requested and not read.
	Unread int
	// Size is the size of the bodies, in bytes.
	Size int
	// Rate is how fast unfinished bodies are sent, in bytes per second; 0 means without pauses.
	Rate int
}

// pause is how long a refused caller waits.
const pause = time.Second

// Attack keeps the connections to an address open, and reopens those that are closed, until ctx
// is done. It returns when all are closed.
func (c Crowd) Attack(ctx context.Context, addr, key string) {
	var all sync.WaitGroup
	defer all.Wait()
	start := func(n int, send func(net.Conn)) {
		for range n {
			all.Go(func() {
				for ctx.Err() == nil {
					hold(ctx, addr, send)
					select {
					case <-ctx.Done():
					case <-time.After(pause):
					}
				}
			})
		}
	}
	start(c.Absent, func(conn net.Conn) {
		if head(conn, "chat/completions", key, c.Size) == nil {
			awaitAnswer(conn)
		}
	})
	start(c.Unfinished, func(conn net.Conn) {
		go c.send(ctx, conn, key)
		awaitAnswer(conn)
	})
	start(c.Unread, func(conn net.Conn) {
		_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		body := `{"model":"text-embedding-3-small","input":["a"` + strings.Repeat(`,"a"`, 199) + `]}`
		if head(conn, "embeddings", key, len(body)) == nil {
			_, _ = io.WriteString(conn, body)
			<-ctx.Done()
		}
	})
}

// hold opens a connection, which is closed when ctx is done.
func hold(ctx context.Context, addr string, send func(net.Conn)) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	send(conn)
}

func head(conn net.Conn, path, key string, length int) error {
	_, err := fmt.Fprintf(conn,
		"POST /v1/%s HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\nContent-Type: application/json\r\nContent-Length: "+
			"%d\r\n\r\n",
		path, key, length)
	return err
}

// send sends a body except for its last byte.
func (c Crowd) send(ctx context.Context, conn net.Conn, key string) {
	if head(conn, "chat/completions", key, c.Size) != nil {
		return
	}
	piece := make([]byte, 16<<10)
	for left := c.Size - 1; left > 0 && ctx.Err() == nil; {
		n, err := conn.Write(piece[:min(left, len(piece))])
		if err != nil {
			return
		}
		left -= n
		if c.Rate > 0 {
			time.Sleep(time.Duration(n) * time.Second / time.Duration(c.Rate))
		}
	}
}

// awaitAnswer waits for the first line of a response, or the end of the connection.
func awaitAnswer(conn net.Conn) { _, _ = bufio.NewReader(conn).ReadString('\n') }
