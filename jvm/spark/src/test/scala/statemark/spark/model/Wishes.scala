package statemark.spark.model

import statemark.spark.Line

/** Turns the wishes of a history into calls that are legal on the open store: a family that is live
  * and suits, a key of its pool, and where no family allows the call the nearest one that any does.
  */
final class Wishes(settings: Settings) {
  private val families = settings.families

  /** The wish on a family that is there and allows it, or the nearest that any family allows. */
  def write(state: State, wish: Write): Option[Write] = {
    def on(wanted: Int, suits: Family => Boolean)(make: Family => Write) =
      family(state, wanted, suits).map(make)
    def onMulti(wanted: Int, instead: => Write)(make: Family => Write) =
      on(wanted, _.multi)(make).orElse(this.write(state, instead))
    def canDeleteRange(family: Family) = family.kind.deleteRange && settings.useFamilies
    def onLists(wanted: Int, instead: => Write)(make: Family => Write) =
      if (Line.hasStoreOf41) onMulti(wanted, instead)(make) else this.write(state, instead)
    wish match {
      case Op.Put(f, k, v) => on(f, _ => true)(f => Op.Put(f.index, k % f.keys.size, v))
      case Op.Remove(f, k) => on(f, _ => true)(f => Op.Remove(f.index, k % f.keys.size))
      case Op.PutList(f, k, vs) =>
        onLists(f, Op.Put(f, k, vs.head))(f => Op.PutList(f.index, k % f.keys.size, vs))
      case Op.Merge(f, k, v) =>
        onMulti(f, Op.Put(f, k, v))(f => Op.Merge(f.index, k % f.keys.size, v))
      case Op.MergeList(f, k, vs) =>
        onLists(f, Op.Merge(f, k, vs.head))(f => Op.MergeList(f.index, k % f.keys.size, vs))
      case Op.DeleteRange(f, a, b) =>
        on(f, canDeleteRange) { f =>
          val ends = Seq(a % f.keys.size, b % f.keys.size).sorted
          Op.DeleteRange(f.index, ends.head, ends.last)
        }.orElse(this.write(state, Op.Remove(f, a)))
      case Op.CreateFamily(f) if families.size > 1 =>
        Some(Op.CreateFamily(1 + f % (families.size - 1)))
      case Op.RemoveFamily(f) if families.size > 1 =>
        // Spark refuses to remove a family whose name begins with a dollar sign.
        Some(families(1 + f % (families.size - 1))).filterNot(_.isInternal)
          .map(f => Op.RemoveFamily(f.index))
      case _ => None
    }
  }

  /** A live family that suits. */
  def family(state: State, wanted: Int, suits: Family => Boolean): Option[Family] = {
    val there = families.filter(f => state.isLive(f) && suits(f))
    if (there.isEmpty) None else Some(there(wanted % there.size))
  }

  /** The scan on a family that allows it, else an iterator; and whether it returns all values. */
  def scan(state: State, wanted: Int, wish: Scan, all: Boolean): (Family, Scan, Boolean) = {
    val multi = all && Line.hasStoreOf42
    def suits(family: Family) = (family.multi || !multi) && (wish match {
      case Scan.All => true
      case Scan.Prefix(_) => family.kind.prefixScan
      case Scan.Range(_, _) => family.kind.rangeScan
    })
    family(
      state,
      wanted,
      suits
    ).fold((family(state, wanted, _ => true).get, Scan.All: Scan, false)) {
      family =>
        val size = family.keys.size
        val scan = wish match {
          case Scan.All => Scan.All
          case Scan.Prefix(key) => Scan.Prefix(key % size)
          case Scan.Range(Some(a), Some(b)) =>
            val ends = Seq(a % size, b % size).sorted
            Scan.Range(Some(ends.head), Some(ends.last))
          case Scan.Range(a, b) => Scan.Range(a.map(_ % size), b.map(_ % size))
        }
        (family, scan, multi)
    }
  }
}

object Wishes {

  def familyOf(write: Write): Int = write match {
    case Op.Put(family, _, _) => family
    case Op.PutList(family, _, _) => family
    case Op.Merge(family, _, _) => family
    case Op.MergeList(family, _, _) => family
    case Op.Remove(family, _) => family
    case Op.DeleteRange(family, _, _) => family
    case Op.CreateFamily(family) => family
    case Op.RemoveFamily(family) => family
  }

  def show(write: Write, family: Family): String = {
    val name = family.name
    write match {
      case Op.Put(_, k, v) => s"put $name ${family.show(k)} -> $v"
      case Op.PutList(_, k, vs) => s"putList $name ${family.show(k)} -> ${vs.mkString(",")}"
      case Op.Merge(_, k, v) => s"merge $name ${family.show(k)} + $v"
      case Op.MergeList(_, k, vs) => s"mergeList $name ${family.show(k)} + ${vs.mkString(",")}"
      case Op.Remove(_, k) => s"remove $name ${family.show(k)}"
      case Op.DeleteRange(_, a, b) => s"deleteRange $name [${family.show(a)}, ${family.show(b)})"
      case Op.CreateFamily(_) => s"create $name if absent"
      case Op.RemoveFamily(_) => s"remove $name if it exists"
    }
  }

  def show(scan: Scan, family: Family, multi: Boolean): String = {
    val what = scan match {
      case Scan.All => "iterator"
      case Scan.Prefix(key) => s"prefixScan as ${family.show(key)}"
      case Scan.Range(a, b) =>
        s"rangeScan [${a.fold("-")(family.show)}, ${b.fold("-")(family.show)})"
    }
    s"$what on ${family.name}${if (multi) " with all values" else ""}"
  }
}
