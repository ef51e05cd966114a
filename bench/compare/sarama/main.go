// The four consumer modes with Sarama, each decoding {"id": N}: the counterpart of `ottla bench patterns`.
//
// As in the article that describes them, a group handler marks a message when its callback returns, with 8 workers, a
// queue of 1000 and batches of 1000. The article's workers wrongly mark past unfinished messages; this is kept,
// because it costs nothing.
package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

const (
	queue     = 1000
	batchSize = 1000
	ticker    = time.Second
	silence   = 30 * time.Second
)

type message struct {
	ID uint64 `json:"id"`
	// Due is when it was to be sent, in nanoseconds since 1970; 0 if it does not say.
	Due int64 `json:"due"`
}

// handled is a message with the session in which it is marked.
type handled struct {
	session sarama.ConsumerGroupSession
	message *sarama.ConsumerMessage
}

// tally is the total of all workers.
type tally struct {
	count, sum atomic.Uint64
	want       uint64
	done       chan struct{}
	once       sync.Once
	// block is the time that each message blocks its worker.
	block time.Duration
	// noted gets each message's id before it is marked, if it is set.
	noted *os.File

	mu        sync.Mutex
	latencies []int64
}

// measure records the latency of a message that says when it was due.
func (t *tally) measure(decoded message) {
	if decoded.Due > 0 {
		latency := time.Now().UnixNano() - decoded.Due
		t.mu.Lock()
		t.latencies = append(t.latencies, latency)
		t.mu.Unlock()
	}
}

func fail(what string, why any) {
	fmt.Fprintf(os.Stderr, "sarama: %s: %v\n", what, why)
	os.Exit(1)
}

// take decodes messages, marks them, and signals when all have arrived.
func (t *tally) take(messages ...handled) {
	sum, ids := uint64(0), []byte(nil)
	for _, m := range messages {
		if t.block > 0 {
			time.Sleep(t.block)
		}
		var decoded message
		if err := json.Unmarshal(m.message.Value, &decoded); err != nil {
			fail("decode", err)
		}
		sum += decoded.ID
		t.measure(decoded)
		if t.noted != nil {
			ids = binary.LittleEndian.AppendUint64(ids, decoded.ID)
		} else {
			m.session.MarkMessage(m.message, "")
		}
	}
	if t.noted != nil {
		// The effect of a batch comes at its end, and marks follow it.
		if _, err := t.noted.Write(ids); err != nil {
			fail("note", err)
		}
		for _, m := range messages {
			m.session.MarkMessage(m.message, "")
		}
	}
	t.sum.Add(sum)
	if count := t.count.Add(uint64(len(messages))); t.want > 0 && count >= t.want {
		t.once.Do(func() { close(t.done) })
	}
}

type handler struct {
	claim func(sarama.ConsumerGroupSession, <-chan *sarama.ConsumerMessage)
}

func (handler) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (h handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	h.claim(session, claim.Messages())
	return nil
}

// batches collects the messages of all claims, and emits a batch when it is full or when the ticker fires.
type batches struct {
	mu     sync.Mutex
	buffer []handled
	give   func([]handled)
	ticks  *time.Ticker
}

func (b *batches) flush() {
	if len(b.buffer) > 0 {
		full := b.buffer
		b.buffer = make([]handled, 0, batchSize)
		b.give(full)
	}
}

func (b *batches) claim(session sarama.ConsumerGroupSession, messages <-chan *sarama.ConsumerMessage) {
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				return
			}
			b.mu.Lock()
			b.buffer = append(b.buffer, handled{session, m})
			if len(b.buffer) >= batchSize {
				b.flush()
			}
			b.mu.Unlock()
		case <-b.ticks.C:
			b.mu.Lock()
			b.flush()
			b.mu.Unlock()
		}
	}
}

func pattern(mode string, workers int, t *tally) handler {
	switch mode {
	case "sync":
		return handler{func(session sarama.ConsumerGroupSession, messages <-chan *sarama.ConsumerMessage) {
			for m := range messages {
				t.take(handled{session, m})
			}
		}}
	case "batch":
		b := &batches{give: func(full []handled) { t.take(full...) }, ticks: time.NewTicker(ticker)}
		return handler{b.claim}
	case "multi-async":
		work := make(chan handled, queue)
		for range workers {
			go func() {
				for m := range work {
					t.take(m)
				}
			}()
		}
		return handler{func(session sarama.ConsumerGroupSession, messages <-chan *sarama.ConsumerMessage) {
			for m := range messages {
				work <- handled{session, m}
			}
		}}
	case "multi-batch":
		work := make(chan []handled, queue)
		for range workers {
			go func() {
				for full := range work {
					t.take(full...)
				}
			}()
		}
		b := &batches{give: func(full []handled) { work <- full }, ticks: time.NewTicker(ticker)}
		return handler{b.claim}
	}
	fail("mode", mode)
	return handler{}
}

func cpu() time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail("getrusage", err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

func maxRSS() int64 {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		fail("getrusage", err)
	}
	return usage.Maxrss
}

// percentiles returns the latencies in microseconds, or nil if no message said when it was due.
func (t *tally) percentiles() map[string]float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.latencies) == 0 {
		return nil
	}
	slices.Sort(t.latencies)
	at := func(share float64) float64 {
		return float64(t.latencies[int(share*float64(len(t.latencies)-1))]) / 1e3
	}
	return map[string]float64{"p50": at(0.5), "p90": at(0.9), "p99": at(0.99), "max": at(1)}
}

func version() string {
	info, _ := debug.ReadBuildInfo()
	for _, dependency := range info.Deps {
		if dependency.Path == "github.com/IBM/sarama" {
			return dependency.Version
		}
	}
	return "unknown"
}

func main() {
	brokers := flag.String("brokers", "", "host:port,...")
	topic := flag.String("topic", "", "the topic, which must be full")
	mode := flag.String("mode", "", "sync, batch, multi-async, multi-batch")
	count := flag.Uint64("count", 1_000_000, "messages, all that the topic has")
	workers := flag.Int("workers", 8, "workers of the modes that fan out")
	member := flag.String("member", "", "join this group until standard input ends, and note what is handled in --handled")
	noted := flag.String("handled", "", "the file of the handled ids, 8 bytes each, for --member")
	blockUs := flag.Int("block-us", 0, "microseconds that each message blocks its worker")
	flag.Parse()
	if *brokers == "" || *topic == "" || *mode == "" {
		fail("usage", "--brokers, --topic and --mode are needed")
	}
	config := sarama.NewConfig()
	config.Version = sarama.V2_8_0_0
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	t := &tally{want: *count, done: make(chan struct{}), block: time.Duration(*blockUs) * time.Microsecond}
	if *member != "" {
		// As the members of `ottla bench patterns`: a killed one leaves the group after this time.
		config.Consumer.Group.Session.Timeout = 6 * time.Second
		config.Consumer.Group.Heartbeat.Interval = time.Second
		file, err := os.OpenFile(*noted, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err != nil {
			fail("handled", err)
		}
		t.noted, t.want = file, 0
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			t.once.Do(func() { close(t.done) })
		}()
	}
	h := pattern(*mode, *workers, t)

	began, before := time.Now(), cpu()
	name := fmt.Sprintf("patterns-sarama-%s-%d", *mode, began.UnixNano())
	if *member != "" {
		name = *member
	}
	group, err := sarama.NewConsumerGroup(strings.Split(*brokers, ","), name, config)
	if err != nil {
		fail("group", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		for ctx.Err() == nil {
			if err := group.Consume(ctx, []string{*topic}, h); err != nil {
				ended <- err
				return
			}
		}
		ended <- nil
	}()
	for last := uint64(0); ; {
		select {
		case <-t.done:
		case err := <-ended:
			fail("consume", err)
		case <-time.After(silence):
			now := t.count.Load()
			if now == last && *member == "" {
				fail("silence", fmt.Sprintf("%d of %d messages, and no more", now, *count))
			}
			last = now
			continue
		}
		break
	}
	wall, used := time.Since(began), cpu()-before
	cancel()
	_ = group.Close()
	if *member != "" {
		*count = t.count.Load()
	} else if sum := t.sum.Load(); sum != *count*(*count-1)/2 {
		fail("sum", fmt.Sprintf("the ids' sum is %d, not %d", sum, *count*(*count-1)/2))
	}
	out, _ := json.Marshal(map[string]any{
		"library":        "sarama " + version(),
		"mode":           *mode,
		"messages":       *count,
		"wall_s":         wall.Seconds(),
		"msgs_per_s":     float64(*count) / wall.Seconds(),
		"cpu_ns_per_msg": float64(used.Nanoseconds()) / float64(max(*count, 1)),
		"max_rss_kb":     maxRSS(),
		"latency_us":     t.percentiles(),
		"cores":          used.Seconds() / wall.Seconds(),
		"began_s":        float64(began.UnixNano()) / 1e9,
		"ended_s":        float64(began.Add(wall).UnixNano()) / 1e9,
	})
	fmt.Println(string(out))
}
