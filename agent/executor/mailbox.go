package executor

// newest is a mailbox for one value, of which a newer one takes the place.
type newest[T any] chan T

func newNewest[T any]() newest[T] { return make(newest[T], 1) }

// put never blocks. It is for one goroutine at a time.
func (n newest[T]) put(v T) {
	for {
		select {
		case n <- v:
			return
		default:
		}
		select {
		case <-n:
		default:
		}
	}
}
