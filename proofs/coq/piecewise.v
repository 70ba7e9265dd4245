(* Piecewise linear functions take all values between two of their values, in every ordered field.

   Proved: sums, multiples, positive parts, minima and finite sums of piecewise linear functions of one variable
   are piecewise linear, and the intermediate value theorem holds for them (intermediate_value). No completeness
   of the field is needed, so this holds over the rationals too. Used for the existence of the levels of the
   optimal sequential rule. *)

From mathcomp Require Import all_ssreflect all_algebra ring.
From Speculative Require Import laws.
Set Implicit Arguments. Unset Strict Implicit. Unset Printing Implicit Defensive.
Import Order.TTheory GRing.Theory Num.Theory.
Local Open Scope ring_scope.

Section Piecewise.
Variable F : realFieldType.
Implicit Types (f g h : F -> F) (a b c d m t : F).

(* Finitely many affine pieces on [a, b]. *)
Inductive piecewise f : F -> F -> Prop :=
  | Affine a b c d of (forall t, a <= t <= b -> f t = c * t + d) : piecewise f a b
  | Join a m b of a <= m & m <= b & piecewise f a m & piecewise f m b : piecewise f a b.

Lemma piecewise_restrict f a b : piecewise f a b -> forall a' b', a <= a' -> b' <= b -> piecewise f a' b'.
Proof.
elim=> {a b} [a b c d aff | a m b _ _ _ IHl _ IHr] a' b' le_a le_b.
  apply: (@Affine f a' b' c d) => t /andP[le_t ge_t].
  by apply: aff; rewrite (le_trans le_a) ?(le_trans ge_t).
have [le_am | lt_ma] := leP a' m; last by apply: IHr => //; apply: ltW.
have [le_mb | lt_bm] := leP m b'; last by apply: IHl => //; apply: ltW.
by apply: (Join le_am le_mb); [apply: IHl | apply: IHr].
Qed.

Lemma eq_piecewise f g a b : (forall t, a <= t <= b -> f t = g t) -> piecewise f a b -> piecewise g a b.
Proof.
move=> + pf; elim: pf => {a b} [a b c d aff | a m b am mb _ IHl _ IHr] fg.
  by apply: (@Affine g a b c d) => t t_ab; rewrite -fg ?aff.
apply: (Join am mb); [apply: IHl => t /andP[at_ tm] | apply: IHr => t /andP[mt tb]]; apply: fg.
  by rewrite at_ (le_trans tm).
by rewrite tb (le_trans am).
Qed.

(* To show that h is piecewise linear, assume that f and g are affine. *)
Lemma piecewise_affine f g h :
  (forall a b c d c' d', (forall t, a <= t <= b -> f t = c * t + d) ->
     (forall t, a <= t <= b -> g t = c' * t + d') -> piecewise h a b) ->
  forall a b, piecewise f a b -> piecewise g a b -> piecewise h a b.
Proof.
move=> base a b pf; elim: pf => {a b} [a b c d f_aff pg | a m b am mb _ IHl _ IHr pg]; last first.
  by apply: (Join am mb (IHl _) (IHr _)); apply: piecewise_restrict pg _ _ _ _.
elim: pg f_aff => {a b} [a b c' d' g_aff | a m b am mb _ IHl _ IHr] f_aff; first exact: base f_aff g_aff.
apply: (Join am mb (IHl _) (IHr _)) => t /andP[le_t ge_t]; apply: f_aff.
  by rewrite le_t (le_trans ge_t).
by rewrite ge_t (le_trans am).
Qed.

Lemma piecewise_const c a b : piecewise (fun=> c) a b.
Proof. by apply: (@Affine _ a b 0 c) => t _; rewrite mul0r add0r. Qed.

Lemma piecewise_id a b : piecewise id a b.
Proof. by apply: (@Affine _ a b 1 0) => t _; rewrite mul1r addr0. Qed.

Lemma piecewise_add f g a b : piecewise f a b -> piecewise g a b -> piecewise (fun t => f t + g t) a b.
Proof.
apply: piecewise_affine => {}a {}b c d c' d' f_aff g_aff.
by apply: (@Affine _ a b (c + c') (d + d')) => t t_ab; rewrite f_aff ?g_aff //; ring.
Qed.

Lemma piecewise_scale k f a b : piecewise f a b -> piecewise (fun t => k * f t) a b.
Proof.
move=> pf; apply: (piecewise_affine _ pf pf) => {pf}a {}b c d _ _ f_aff _.
by apply: (@Affine _ a b (k * c) (k * d)) => t t_ab; rewrite f_aff //; ring.
Qed.

Lemma piecewise_sub f g a b : piecewise f a b -> piecewise g a b -> piecewise (fun t => f t - g t) a b.
Proof.
move=> pf pg; apply: eq_piecewise (piecewise_add pf (piecewise_scale (-1) pg)) => t _; ring.
Qed.

(* A kink at m. *)
Lemma piecewise_kink f m c d c' d' a b :
  (forall t, t <= m -> f t = c * t + d) -> (forall t, m <= t -> f t = c' * t + d') -> piecewise f a b.
Proof.
move=> left right; apply: (@piecewise_restrict f (Num.min a m) (Num.max m b)); last 2 first.
- by rewrite le_minl lexx.
- by rewrite le_maxr lexx orbT.
apply: (@Join _ _ m); rewrite ?le_minl ?le_maxr ?lexx ?orbT //.
  by apply: (@Affine _ _ _ c d) => t /andP[_ /left].
by apply: (@Affine _ _ _ c' d') => t /andP[/right].
Qed.

Lemma piecewise_pos f a b : piecewise f a b -> piecewise (fun t => pos (f t)) a b.
Proof.
move=> pf; apply: (piecewise_affine _ pf pf) => {pf}a {}b c d _ _ f_aff _.
apply: (@eq_piecewise (fun t => pos (c * t + d))) => [t t_ab | ]; first by rewrite f_aff.
have [-> | c_neq0] := eqVneq c 0.
  by apply: eq_piecewise (piecewise_const (pos d) a b) => t _; rewrite mul0r add0r.
have root t : c * t + d = c * (t - - d / c) by field.
have [c_gt0 | c_lt0 | /eqP] := ltgtP 0 c; last by rewrite eq_sym (negPf c_neq0).
  apply: (@piecewise_kink _ (- d / c) 0 0 c d) => t t_m.
    by rewrite pos_eq0 ?root ?pmulr_rle0 ?subr_le0 //; ring.
  by rewrite pos_id // root pmulr_rge0 // subr_ge0.
apply: (@piecewise_kink _ (- d / c) c d 0 0) => t t_m; last first.
  by rewrite pos_eq0 ?root ?nmulr_rle0 ?subr_ge0 //; ring.
by rewrite pos_id // root nmulr_rge0 // subr_le0.
Qed.

Lemma piecewise_min f g a b : piecewise f a b -> piecewise g a b -> piecewise (fun t => Num.min (f t) (g t)) a b.
Proof.
move=> pf pg; apply: eq_piecewise (piecewise_sub pf (piecewise_pos (piecewise_sub pf pg))) => t _.
by rewrite min_pos.
Qed.

Lemma piecewise_sum (V : Type) (s : seq V) (f : V -> F -> F) a b :
  (forall x, piecewise (f x) a b) -> piecewise (fun t => \sum_(x <- s) f x t) a b.
Proof.
move=> pf; elim: s => [|x s IH].
  by apply: eq_piecewise (piecewise_const 0 a b) => t _; rewrite big_nil.
by apply: eq_piecewise (piecewise_add (pf x) IH) => t _; rewrite big_cons.
Qed.

Theorem intermediate_value f a b y :
  piecewise f a b -> a <= b -> f a <= y <= f b -> exists2 t, a <= t <= b & f t = y.
Proof.
elim=> {a b} [a b c d aff ab | a m b am mb _ IHl _ IHr _] /andP[fa_y y_fb]; last first.
  have [fm_y | y_fm] := leP (f m) y.
    have [|t /andP[mt tb] ft] := IHr mb; first by rewrite fm_y.
    by exists t; rewrite // tb (le_trans am).
  have [|t /andP[at_ tm] ft] := IHl am; first by rewrite fa_y ltW.
  by exists t; rewrite // at_ (le_trans tm).
have [fa_fb | ] := eqVneq (f a) (f b).
  by exists a; rewrite ?lexx ?ab //; apply/eqP; rewrite eq_le fa_y fa_fb y_fb.
rewrite eq_sym -subr_eq0 => rise_neq0; set rise := f b - f a in rise_neq0.
have rise_gt0 : 0 < rise by rewrite lt_neqAle eq_sym rise_neq0 subr_ge0 (le_trans fa_y).
pose s := (y - f a) / rise.
have s_ge0 : 0 <= s by apply: divr_ge0; [rewrite subr_ge0 | apply: ltW].
have s_le1 : 0 <= 1 - s.
  have -> : 1 - s = (f b - y) / rise by rewrite /s /rise; field; rewrite -/rise.
  by apply: divr_ge0; [rewrite subr_ge0 | apply: ltW].
have t_ab : a <= a + (b - a) * s <= b.
  apply/andP; split; first by rewrite ler_addl mulr_ge0 ?subr_ge0.
  apply: (@le_of_diff _ _ _ ((b - a) * (1 - s))); last by ring.
  by rewrite mulr_ge0 // subr_ge0.
exists (a + (b - a) * s) => //.
have fa : f a = c * a + d by apply: aff; rewrite lexx.
have fb : f b = c * b + d by apply: aff; rewrite lexx ab.
rewrite aff //; transitivity (f a + rise * s); first by rewrite /rise fa fb; ring.
by rewrite /s mulrCA mulfV // mulr1 addrCA subrr addr0.
Qed.

End Piecewise.
